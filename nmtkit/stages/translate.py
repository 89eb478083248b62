"""translate: from a bundle and the test sets to hypotheses (section 6.1)."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.engine import PART_LINES
from nmtkit.decoding.lines import Translation, Translator
from nmtkit.evaluation.translations import write_set
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY
from nmtkit.utils import progress
from nmtkit.utils.hardware import check_has_code


def run(pipeline: Pipeline) -> Artifact:
    pipeline.delete_forced()
    return pipeline.make("translate", lambda draft: _translate(pipeline, draft), resume=True)


def _translate(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    from nmtkit.decoding.torch_engine import TorchEngine

    check_has_code(device := pipeline.settings.torch_device())
    bundle = open_bundle(pipeline.need("average").path)
    translator = bundle.translator(TorchEngine.load([bundle], device))
    journal = Journal(draft / TEMPORARY, draft, pipeline.inputs("translate"))
    sets: dict[str, dict[str, float]] = {}
    for corpus in pipeline.corpora["sets"]:
        src, *references = map(list, zip(*corpus.rows(pipeline.fetch), strict=True))
        translations, seconds = _translate_in_parts(translator, corpus.name, src, journal)
        for number, translation in enumerate(translations, start=1):
            warn_if_cut(translator, f"{corpus.name}, line {number:,}", translation)
        hyps = [translation.text for translation in translations]
        write_set(draft, corpus.name, src, hyps, references, list(map(_rating, translations)))
        n_repaired = sum(bool(translation.repairs) for translation in translations)
        if bundle.text.tgt.is_of_trees:
            progress.log(
                f"translate: {corpus.name}: {n_repaired:,} of {len(src):,} outputs were no trees "
                "of these words and were repaired"
            )
        sets[corpus.name] = {
            "sentences_per_second": round(len(src) / seconds, 2),
            "lines_in_pieces": sum(t.n_pieces > 1 for t in translations),
        }
    return {"device": str(device), "sets": sets}


def warn_if_cut(translator: Translator, line: str, translation: Translation) -> None:
    """Warn if a line, or sentences of it, were too long to be translated in one piece.

    Args:
        line: Name of the line, for the warning.
    """
    if not translation.n_cut:
        return
    limit = f"more than {translator.max_subwords:,} subwords or {MAX_CHARACTERS:,} characters"
    if translator.split_sentences:
        what = "a sentence" if translation.n_cut == 1 else f"{translation.n_cut:,} sentences"
        progress.warn(f"{line} has {what} of {limit}, translated in pieces")
    else:
        n_pieces = f"{translation.n_pieces:,} pieces"
        progress.warn(f"{line} has {limit} and was translated in {n_pieces}")


def _rating(translation: Translation) -> dict[str, Any]:
    return {
        "score": round(translation.score, 4),
        "log_prob": round(translation.log_prob, 4),
        "tokens": translation.n_tokens,
        **({"pieces": translation.n_pieces} if translation.n_pieces > 1 else {}),
        **({"repairs": list(translation.repairs)} if translation.repairs else {}),
    }


def _translate_in_parts(
    translator: Translator, name: str, lines: Sequence[str], journal: Journal
) -> tuple[list[Translation], float]:
    """Translate the `lines` that no earlier run did, and return the seconds of all."""
    size = PART_LINES[translator.engine.device]
    by_length = sorted(range(len(lines)), key=lambda i: -len(lines[i]))  # for full batches
    told = journal[name] or {"lines": 0, "seconds": 0.0}
    path = journal.folder / f"{name}.jsonl"  # finished translations, in the order they came
    begin = time.monotonic() - told["seconds"]
    with (
        progress.task(f"translate: {name}", unit="sentences", total=len(lines)) as task,
        journal.reopen(path) as file,
    ):
        task.advance(told["lines"])
        for start in range(told["lines"], len(lines), size):
            part = by_length[start : start + size]
            for translation in translator.translate([lines[i] for i in part], task.advance):
                file.write(json.dumps(asdict(translation)).encode() + b"\n")
            file.flush()
            told = {"lines": start + len(part), "seconds": time.monotonic() - begin}
            journal.commit(name, told, path)
    finished = [Translation(**json.loads(line)) for line in path.read_bytes().split(b"\n")[:-1]]
    by_line = dict(zip(by_length, finished, strict=True))
    return [by_line[i] for i in range(len(lines))], told["seconds"]
