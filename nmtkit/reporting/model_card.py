"""The model card of an exported bundle: how text goes in, its scores, and where it comes from."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from nmtkit.cli.new import TEMPLATES
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.decoding.bundle import Bundle
from nmtkit.evaluation.translations import read_scores
from nmtkit.reporting.grid import markdown
from nmtkit.reporting.scores import HOW, SCORE_NAMES
from nmtkit.sources.catalog import load_catalog
from nmtkit.sources.parallel import find_corpus
from nmtkit.stages.listing import recorded, with_sources, without_damaged
from nmtkit.store.artifacts import Artifact, Store, open_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import canonical_json
from nmtkit.utils.language import Language
from nmtkit.utils.text import visible, visible_json

LICENCES = {"Apache-2.0": "apache-2.0"}  # as the hub calls them; it knows the others as "other"


def write_card(
    folder: Path, bundle: Bundle, library: str, name: str, repository: str | None
) -> None:
    """Write README.md and, unless our sentencepieces read raw text, the script that prepares text.

    Scores, training and corpus are listed if they are next to the bundle in its folder of runs.

    Args:
        folder: The folder of the exported model.
        bundle: The exported bundle.
        library: The library that loads the model: transformers or ctranslate2.
        name: The name that the folder will have.
        repository: The repository of the Hugging Face hub that the folder is uploaded to.
    """
    path, sides = bundle.artifact.path.resolve(), (bundle.text.src, bundle.text.tgt)
    made_from, results = list(_made_from(path)), list(_results(path))
    run = recorded(path).run
    title = run.name if run else repository or name
    front = ModelCardData(
        language=[*dict.fromkeys(side.lang for side in sides)],
        license=_licence(made_from),
        library_name=library,
        pipeline_tag="translation",
        tags=["nmtkit"],
        metrics=[*dict.fromkeys(result.metric_type for result in results)] or None,
        model_name=title if results else None,
        eval_results=results or None,
    )
    of_subwords = bundle.text.subword.counts is not None
    of_tokens = any(
        side.tokenizer != "none" or side.lowercase or side.normalize_punctuation for side in sides
    )
    told = {each.manifest.kind: _told(each) for each in made_from}
    given = {
        "bundle": bundle,
        "library": library,
        "reads": "subwords" if of_subwords else "tokens" if of_tokens else "text",
        "front": front.to_yaml(),
        "name": markdown(title),
        "place": repr(name),
        "repository": repository and repr(repository),
        "results": results,
        "provenance": visible_json(canonical_json(told)),
        "markdown": markdown,
    }
    for file in ("README.md", "prepare_text.py") if of_subwords or of_tokens else ("README.md",):
        page = TEMPLATES.get_template(f"{file}.j2").render(given)
        # Names of languages and scores come from files, which may be a stranger's.
        shown = "\n".join(visible(line) for line in page.split("\n"))
        (folder / file).write_text(shown, encoding="utf-8", newline="\n")


def _made_from(bundle: Path) -> Iterator[Artifact]:
    """Yield what the bundle was made from, as far as it is there, and the bundle."""
    for path in with_sources(bundle, bundle.parents[1]):
        with without_damaged(path / MANIFEST):
            yield open_directory(path)


def _results(bundle: Path) -> Iterator[EvalResult]:
    """Yield the scores of the test sets that were translated with the bundle."""
    runs = bundle.parents[1]
    found = (path for path in Store(runs).folders("score") if not path.suffix)
    made = (path for path in found if bundle in with_sources(path, runs))
    for scores in (each for path in made for each in read_scores(open_directory(path)).values()):
        for kind in (each for each in SCORE_NAMES if each in scores):
            yield EvalResult(
                task_type="translation",
                dataset_type=scores["test_set"]["name"],
                dataset_name=scores["test_set"]["name"],
                dataset_revision=scores["test_set"]["sha256"],
                metric_type="bleu" if kind.endswith("_bleu") else kind,
                metric_name=SCORE_NAMES[kind],
                metric_value=round(scores[kind]["score"], 2),
                metric_args={key: scores[kind][key] for key in HOW if key in scores[kind]},
            )


def _licence(made_from: Sequence[Artifact]) -> str | None:
    """Return the licence of the training corpora, if the catalog has that of all of them."""
    catalog, licences = load_catalog(), set()
    for corpus in (each for each in made_from if each.manifest.kind == "prepare"):
        told = corpus.manifest.depends_on
        src, tgt = (Language.of(told["corpus"][f"{side}_lang"]) for side in SIDES)
        names = [counted["corpus"] for counted in PreparedCorpus(corpus).counts().train]
        for name, identity in zip(names, told["inputs"]["train"], strict=True):
            if name not in catalog.corpora or find_corpus(name, src, tgt).identity() != identity:
                return None
            licences.add(LICENCES.get(catalog.corpora[name].licence, "other"))
    return licences.pop() if len(licences) == 1 else "other" if licences else None


def _told(artifact: Artifact) -> dict[str, Any]:
    """Return where an artifact comes from, without paths of this machine."""
    run, manifest = recorded(artifact.path).run, artifact.manifest
    told = manifest.model_dump(include={"fingerprint", "depends_on", "made_by"})
    told["recipe"] = run and run.model_dump(include={"name", "sha256", "commit", "clean"})
    return told
