"""The model card of an exported bundle: its input, its scores and its origin."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from nmtkit.config.loading import load_recipe
from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.sentencepiece_subword import SentencePiecePair
from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.ctranslate2_engine import search_patience
from nmtkit.evaluation.scores import METHOD_KEYS, SCORE_NAMES, shown_scores
from nmtkit.evaluation.translations import read_scores
from nmtkit.rendering import document
from nmtkit.rendering.grid import markdown
from nmtkit.sources.catalog import load_catalog
from nmtkit.sources.parallel import find_corpus
from nmtkit.store.artifacts import Artifact, Store, open_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.provenance import (
    Provenance,
    read_run_record,
    surrounding_runs_dir,
    with_sources,
    without_damaged,
)
from nmtkit.store.records import canonical_json
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import visible, visible_json

CARD = "README.md"
SCRIPT = "prepare_text.py"
TRANSLATION_SCRIPT = "translate.py"  # needs neither nmtkit nor torch
HUB_LICENCES = {"Apache-2.0": "apache-2.0"}  # identifiers of the hub
OTHER_LICENCE = "other"

# The templates are Markdown and Python, not HTML.
TEMPLATES = document.templates(Path(__file__).parent).overlay(autoescape=False, finalize=None)


@dataclass(frozen=True)
class OriginArtifact:
    """An artifact, and the run that built it, if that is recorded."""

    artifact: Artifact
    run: Provenance | None


@dataclass(frozen=True)
class Origin:
    """The origin of a bundle, as far as its artifacts are on this machine.

    Attributes:
        artifacts: The artifacts that the bundle was built from, in order; the last is the bundle.
        scores: The artifacts of `score` that were built from the bundle.
    """

    artifacts: Sequence[OriginArtifact]
    scores: Sequence[Artifact]


def bundle_origin(path: Path) -> Origin:
    """Find the artifacts that a bundle was built from, and its scores, in its folder of runs.

    Args:
        path: The absolute path of the bundle.
    """
    runs_dir = surrounding_runs_dir(path)
    artifacts = []
    for source in with_sources(path, runs_dir):
        # A bundle that was copied elsewhere has no sources there.
        with without_damaged(source / MANIFEST):
            artifacts.append(OriginArtifact(open_directory(source), read_run_record(source).run))
    scores: list[Artifact] = []
    for folder in Store(runs_dir).folders("score"):
        is_published = not folder.suffix
        if is_published and path in with_sources(folder, runs_dir):
            scores.append(open_directory(folder))
    return Origin(artifacts, scores)


def write_card(
    folder: Path, bundle: Bundle, library: str, origin: Origin, name: str, repository: str | None
) -> None:
    """Write README.md and a script, if the library alone does not translate raw text.

    Args:
        folder: The folder of the exported model.
        library: The library that loads the model: transformers or ctranslate2.
        origin: The artifacts that the bundle was built from, and its scores.
        name: The name that the folder will have.
        repository: The repository of the Hugging Face hub that the folder is uploaded to.
    """
    run = origin.artifacts[-1].run
    title = run.name if run else repository or name
    results = _results(origin.scores)
    input_unit = _input_unit(bundle, library)
    values = {
        "bundle": bundle,
        "library": library,
        "input_unit": input_unit,
        "vocabulary_map": VOCABULARY_MAP in bundle.artifact.manifest.files,
        "metadata": _metadata(bundle, library, origin, results, title).to_yaml(),
        "name": markdown(title),
        "folder": repr(name),
        "repository": repr(repository) if repository else None,
        "results": results,
        "provenance": visible_json(canonical_json(_provenance(origin.artifacts))),
        "markdown": markdown,
    }
    write_template(folder / CARD, "README.md.j2", values)
    if input_unit == "text" and library == "ctranslate2":
        values["patience"] = search_patience(bundle.decoding)
        values["max_characters"] = MAX_CHARACTERS
        values["separator"] = repr(bundle.text.sentence_separator)
        write_template(folder / TRANSLATION_SCRIPT, "translate.py.j2", values)
    if input_unit != "text":
        write_template(folder / SCRIPT, "prepare_text.py.j2", values)


def write_template(path: Path, template: str, values: Mapping[str, object]) -> None:
    """Write a template with its values to a file."""
    page = TEMPLATES.get_template(template).render(values)
    # Names of languages and scores come from files, perhaps from a stranger.
    lines = [visible(line) for line in page.split("\n")]
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")


def _input_unit(bundle: Bundle, library: str) -> str:
    """Return the input of the exported model: subwords, tokens or text.

    Args:
        library: The library that loads the model. It splits text by a sentencepiece model itself,
            transformers also by the two of Marian, but none by BPE or Moses.
    """
    subword = bundle.text.subword
    is_marians = library == "transformers" and isinstance(subword, SentencePiecePair)
    if subword.counts is not None and not is_marians:
        return "subwords"
    for side in (bundle.text.src, bundle.text.tgt):
        if side.tokenizer != "none" or side.lowercase or side.normalize_punctuation:
            return "tokens"
    return "text"


def _metadata(
    bundle: Bundle, library: str, origin: Origin, results: Sequence[EvalResult], title: str
) -> ModelCardData:
    """Return the front matter of the card, for the hub."""
    languages = [bundle.text.src.lang, bundle.text.tgt.lang]
    metrics = [result.metric_type for result in results]
    return ModelCardData(
        language=list(dict.fromkeys(languages)),
        license=_licence([source.artifact for source in origin.artifacts]),
        library_name=library,
        pipeline_tag="translation",
        tags=["nmtkit"],
        metrics=list(dict.fromkeys(metrics)) or None,
        model_name=title if results else None,
        eval_results=list(results) or None,
    )


def _results(score_artifacts: Sequence[Artifact]) -> list[EvalResult]:
    """Return the scores of all test sets that were translated with the bundle.

    The kinds are those that `nmtkit score` shows.
    """
    results = []
    for artifact in score_artifacts:
        paper_bleu = False
        run = read_run_record(artifact.path).run
        if run is not None:
            with suppress(UserError, OSError):  # the recipe may have been moved or changed
                paper_bleu = load_recipe(run.recipe, run.overrides).scoring.paper_bleu
        for scores in read_scores(artifact).values():
            for name in shown_scores(scores, all_kinds=paper_bleu):
                if name in scores:  # other values of a kind have a name with a key
                    results.append(_result(scores["test_set"], name, scores[name]))
    return results


def _result(test_set: dict[str, Any], kind: str, score: dict[str, Any]) -> EvalResult:
    """Return a score in the format of the hub.

    Args:
        test_set: The test set, as in `scores.json`.
        score: The score, as in `scores.json`.
    """
    return EvalResult(
        task_type="translation",
        dataset_type=test_set["name"],
        dataset_name=test_set["name"],
        dataset_revision=test_set["sha256"],
        metric_type="bleu" if kind.endswith("_bleu") else kind,
        metric_name=SCORE_NAMES[kind],
        metric_value=round(score["score"], 2),
        metric_args={key: score[key] for key in METHOD_KEYS if key in score},
    )


def _licence(artifacts: Sequence[Artifact]) -> str | None:
    """Return the licence of the training corpora, if the catalog has that of all of them."""
    catalog = load_catalog()
    licences = set()
    for artifact in artifacts:
        if artifact.manifest.kind != "prepare":
            continue
        depends_on = artifact.manifest.depends_on
        src = Language.of(depends_on["corpus"]["src_lang"])
        tgt = Language.of(depends_on["corpus"]["tgt_lang"])
        counts = PreparedCorpus(artifact).counts().train
        for corpus, identity in zip(counts, depends_on["inputs"]["train"], strict=True):
            name = corpus["corpus"]
            # A user's own text can have the name of a corpus.
            if name not in catalog.corpora or find_corpus(name, src, tgt).identity() != identity:
                return None
            licences.add(HUB_LICENCES.get(catalog.corpora[name].licence, OTHER_LICENCE))
    if len(licences) > 1:
        return OTHER_LICENCE
    return licences.pop() if licences else None


def _provenance(artifacts: Sequence[OriginArtifact]) -> dict[str, dict[str, Any]]:
    """Return the origin of the artifacts by their stages, without paths of this machine."""
    provenance = {}
    for source in artifacts:
        manifest = source.artifact.manifest
        facts = manifest.model_dump(include={"fingerprint", "depends_on", "made_by"})
        facts["recipe"] = None
        if source.run is not None:
            facts["recipe"] = source.run.model_dump(include={"name", "sha256", "commit", "clean"})
        provenance[manifest.kind] = facts
    return provenance
