"""nmtkit run."""

import shlex
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from nmtkit.cli.options import SETTINGS_OPTIONS, command
from nmtkit.cli.score import score_parts
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.listing import recorded
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.utils import progress

N_SAMPLES = 5


@command(
    "nmtkit run demo", *[name for name in SETTINGS_OPTIONS if name != "runs_dir"], force=[*STAGES]
)
def run(pipeline: Pipeline, form: Form) -> None:
    found = run_stages(pipeline)
    show(form, found, [*_parts(found), *_what_to_try(pipeline)])


def run_stages(pipeline: Pipeline) -> dict[str, Any]:
    """Run every stage that is not fresh; return what they took, some translations, and scores."""
    from nmtkit.evaluation.translations import read_scores, translated_sets

    pipeline.delete_forced()
    found: dict[str, Artifact] = {}
    for stage in STAGES:
        if artifact := pipeline.find(stage):
            progress.log(f"{stage}: fresh, {artifact.path}")
        else:  # imported only now: if all stages are done, torch is not needed
            artifact = import_module(f"nmtkit.stages.{stage}").run(pipeline)
        found[stage] = artifact
    src, hyps, references = translated_sets(found["translate"])[0].read()
    spread = [len(src) * i // N_SAMPLES for i in range(min(N_SAMPLES, len(src)))]
    ref = references[0] if references else [None] * len(src)
    return {
        "stages": [
            {"name": stage, "summary": summary_of(stage, artifact), "path": str(artifact.path)}
            for stage, artifact in found.items()
        ],
        "samples": [{"src": src[i], "reference": ref[i], "hypothesis": hyps[i]} for i in spread],
        "scores": read_scores(found["score"]),
    }


def summary_of(stage: str, artifact: Artifact) -> str:
    measured = recorded(artifact.path)
    parts = [] if measured.seconds is None else [f"{measured.seconds:,.1f} s"]
    if measured.steps:
        parts += [f"{measured.steps:,} steps"]
    if measured.tgt_tokens_per_second:
        parts += [f"{measured.tgt_tokens_per_second:,.0f} target tokens/s"]
    if stage == "prepare":
        from nmtkit.corpus.prepared import PreparedCorpus

        counts = PreparedCorpus(artifact).counts()
        parts += [f"{counts.sizes['train'].pairs:,} pairs", f"vocabulary {counts.vocabulary:,}"]
    return ", ".join(parts)


def _parts(results: Mapping[str, Any]) -> list[Grid | str]:
    names = {"source": "src", "reference": "reference", "nmtkit": "hypothesis"}
    samples = [
        [(name, each[key]) for name, key in names.items() if each[key] is not None]
        for each in results["samples"]
    ]
    places = [(stage["name"], stage["summary"], stage["path"]) for stage in results["stages"]]
    return [
        Grid("some translations of the test set", ("", ""), 2, samples),
        Grid.of("what was made", ("stage", "", "where"), places, 3),
        *score_parts(results["scores"]),
    ]


def _what_to_try(pipeline: Pipeline) -> Iterator[str]:
    bundle = shlex.join(["nmtkit", "translate", "--bundle", str(pipeline.need("average").path)])
    yield f"translate what you type: {bundle}"
    page = pipeline.need("train").path.with_suffix(".html")
    if page.is_file():
        yield f"curves of the training, for a browser: {page}"
    yield "all runs on one page: nmtkit report; two systems side by side: nmtkit compare"
