"""The stage translate: from a bundle and the test sets to hypotheses (section 6.1)."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmtkit.corpus.subword import Subword
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.engine import PART_LINES
from nmtkit.decoding.text_translator import TextTranslator, Translation, warn_if_cut
from nmtkit.evaluation.degenerate import degenerate_warning
from nmtkit.evaluation.translations import write_set
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY
from nmtkit.utils import progress
from nmtkit.utils.hardware import check_has_code


def run(pipeline: Pipeline) -> Artifact:
    """Return the translated test sets, translated now unless they exist."""
    delete_forced(pipeline)
    return pipeline.build("translate", lambda draft: _translate(pipeline, draft), resume=True)


def _translate(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    """Translate the test sets of a recipe into a draft, and return measurements."""
    from nmtkit.decoding.torch_engine import TorchEngine

    device = pipeline.settings.torch_device()
    check_has_code(device)
    bundle = open_bundle(pipeline.need("average").path)
    translator = bundle.translator(TorchEngine.load([bundle], device))
    # Translations of an earlier run are used only if the bundle is the same.
    journal = Journal(draft / TEMPORARY, draft, pipeline.inputs("translate"))
    sets: dict[str, dict[str, float]] = {}
    for corpus in pipeline.corpora["sets"]:
        with progress.prefix("translate"):
            rows = list(corpus.rows(pipeline.downloads))
        src, *references = map(list, zip(*rows, strict=True))
        translations, seconds = _translate_set(translator, corpus.name, src, journal)
        for number, translation in enumerate(translations, start=1):
            warn_if_cut(translator, f"{corpus.name}, line {number:,}", translation)
        hyps = [translation.text for translation in translations]
        ratings = [_rating(translation) for translation in translations]
        if warning := degenerate_warning(zip(src, hyps, strict=True)):
            progress.warn_once(f"{corpus.name}: {warning}")
        tokens = None
        if bundle.text.tgt.lowercase == "tokens":
            # Tokenizing lower-cased text would give other tokens.
            tokens = [_tokens(bundle.text.subword, translation) for translation in translations]
        write_set(draft, corpus.name, src, hyps, references, ratings, tokens)
        if bundle.text.tgt.has_trees:
            n_repaired = sum(bool(translation.repairs) for translation in translations)
            progress.log(
                f"translate: {corpus.name}: repaired {n_repaired:,} of {len(src):,} outputs that "
                "were not trees of the input words"
            )
        sets[corpus.name] = {
            "sentences_per_second": round(len(src) / seconds, 2),
            "lines_in_pieces": sum(translation.n_pieces > 1 for translation in translations),
        }
    return {"device": str(device), "sets": sets}


def _tokens(subword: Subword, translation: Translation) -> str:
    """Return the tokens of a translation, those of its pieces one after the other."""
    return " ".join(subword.decode(ids) for ids in translation.tgt)


def _rating(translation: Translation) -> dict[str, Any]:
    """Return the scores of a translation that are published with it."""
    rating: dict[str, Any] = {
        "score": round(translation.score, 4),
        "log_prob": round(translation.log_prob, 4),
        "tokens": translation.n_tokens,
    }
    if translation.n_pieces > 1:
        rating["pieces"] = translation.n_pieces
    if translation.repairs:
        rating["repairs"] = list(translation.repairs)
    return rating


def _translate_set(
    translator: TextTranslator, name: str, lines: Sequence[str], journal: Journal
) -> tuple[list[Translation], float]:
    """Translate a test set part by part, except for the parts that an earlier run finished.

    Args:
        translator: Translates the lines.
        name: Name of the test set.
        journal: Records the finished parts.

    Returns:
        The translations in the order of the lines, and the seconds that all parts took.
    """
    part_size = PART_LINES[translator.engine.device]
    # Lines of similar lengths fill batches without padding. The longest come first: a lack of
    # memory shows at once.
    numbers = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    state = journal[name] or {"lines": 0, "seconds": 0.0}
    path = journal.folder / f"{name}.jsonl"  # finished translations, in the order of `numbers`
    begin = time.monotonic() - state["seconds"]  # as if all parts were translated in this run
    with (
        progress.task(f"translate: {name}", unit="sentences", total=len(lines)) as task,
        journal.reopen(path) as file,
    ):
        task.advance(state["lines"])
        for start in range(state["lines"], len(lines), part_size):
            part = [lines[i] for i in numbers[start : start + part_size]]
            for translation in translator.translate(part, task.advance):
                file.write(json.dumps(asdict(translation)).encode() + b"\n")
            file.flush()
            state = {"lines": start + len(part), "seconds": time.monotonic() - begin}
            journal.commit(name, state, path)

    # The translations of all parts, also of earlier runs, are put in the order of the lines.
    finished: dict[int, Translation] = {}
    written = path.read_bytes().split(b"\n")[:-1]
    for number, line in zip(numbers, written, strict=True):
        finished[number] = Translation(**json.loads(line))
    return [finished[i] for i in range(len(lines))], state["seconds"]
