"""nmtkit run."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from nmtkit import progress
from nmtkit.cli.cost import warn_if_long
from nmtkit.cli.options import OF_MACHINE, command
from nmtkit.cli.score import score_parts
from nmtkit.files import DamagedError, read_record
from nmtkit.reporting.code import OtherCode, all_of, marked
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.stages.code import other_code
from nmtkit.store import MEASUREMENTS, Artifact

N_SAMPLES = 5


@dataclass(frozen=True)
class Sample:
    """A line of the first test set and its translation."""

    src: str
    reference: str | None
    hypothesis: str


@dataclass(frozen=True)
class StageResult:
    """What a stage made and what it took."""

    name: str
    summary: str
    path: str
    other_code: OtherCode = field(default_factory=dict)  # that made it


@dataclass(frozen=True)
class Results:
    """What a run ends with."""

    stages: list[StageResult]
    samples: list[Sample]
    scores: dict[str, Any]


@command("nmtkit run demo", *[name for name in OF_MACHINE if name != "runs_dir"], remake=[*STAGES])
def run(chain: Chain, form: Form) -> None:
    """Run all stages that are not done yet, and show the results."""
    found = run_stages(chain)
    show(form, found, [*_parts(found), *_what_to_try(chain)])


def run_stages(chain: Chain) -> Results:
    """Run every stage that is not fresh, and collect the results."""
    warn_if_long(chain)
    for stage in STAGES:
        if artifact := chain.find(stage):
            progress.say(f"{stage}: fresh, {artifact.path}")
            chain.tell_code(artifact)
        else:  # imported only now: if all stages are done, torch is not needed
            import_module(f"nmtkit.stages.{stage}").run(chain)
    return results_of(chain)


def results_of(chain: Chain) -> Results:
    """Collect the results of a finished chain.

    Raises:
        UserError: a stage is not done, or a file that is shown was altered.
    """
    from nmtkit.evaluation.scores import read_scores
    from nmtkit.evaluation.translations import translated_sets

    found = {stage: chain.need(stage) for stage in STAGES}
    src, hyps, references = translated_sets(found["translate"])[0].read()
    spread = [len(src) * i // N_SAMPLES for i in range(min(N_SAMPLES, len(src)))]
    stages = [
        StageResult(stage, summary_of(stage, made), str(made.path), other_code(made.manifest))
        for stage, made in found.items()
    ]
    samples = [Sample(src[i], references[0][i] if references else None, hyps[i]) for i in spread]
    return Results(stages, samples, read_scores(found["score"]))


class _MeasuredSet(BaseModel):
    sentences_per_second: float


class _Measured(BaseModel):
    """The measurements that are shown; they are not hashed."""

    seconds: float
    steps: int | None = None
    timed_steps: int | None = None
    tgt_tokens_per_second: float | None = None
    averaged_steps: list[int] = []
    sets: dict[str, _MeasuredSet] = {}

    def parts(self) -> Iterator[str]:
        """Yield each in words."""
        yield f"{self.seconds:,.1f} s"
        if self.steps is not None:
            yield f"{self.steps:,} steps"
        if self.tgt_tokens_per_second is not None:
            is_of_all = self.timed_steps in (None, self.steps)
            of_some = "" if is_of_all else f" in the {self.timed_steps:,} that were measured"
            yield f"{self.tgt_tokens_per_second:,.0f} target tokens/s{of_some}"
        if self.averaged_steps:
            yield f"steps {', '.join(f'{step:,}' for step in self.averaged_steps)}"
        for name, of_set in self.sets.items():
            yield f"{name} {of_set.sentences_per_second:,.1f} sentences/s"


def summary_of(stage: str, artifact: Artifact) -> str:
    """Return what an artifact took, and what is in it, in words."""
    try:
        parts = list(read_record(artifact.path / MEASUREMENTS, _Measured).parts())
    except DamagedError:
        parts = [f"{MEASUREMENTS} is damaged"]
    if stage == "prepare":
        from nmtkit.corpus.prepared import PreparedCorpus

        counts = PreparedCorpus(artifact).counts()
        parts += [f"{counts.sizes['train'].pairs:,} pairs", f"vocabulary {counts.vocabulary:,}"]
    return ", ".join(parts)


def _parts(results: Results) -> list[Grid | str]:
    """Return some translations, what the run took, where it lies, and scores."""
    samples = [
        [
            ("source", each.src),
            *([("reference", each.reference)] if each.reference is not None else []),
            ("nmtkit", each.hypothesis),
        ]
        for each in results.samples
    ]
    places = [
        (each.name, marked(each.summary, each.other_code), each.path) for each in results.stages
    ]
    other = all_of(*(each.other_code for each in results.stages))
    return [
        Grid("some translations of the test set", ("", ""), 2, samples),
        Grid.of("what was made", ("stage", "", "where"), places, 3),
        *score_parts(results.scores, other),
    ]


def _what_to_try(chain: Chain) -> Iterator[str]:
    """Yield what to do next with a finished run."""
    bundle = shlex.join(["nmtkit", "translate", "--bundle", str(chain.need("average").path)])
    yield f"translate what you type: {bundle}"
    page = chain.need("train").path.with_suffix(".html")
    if page.is_file():
        yield f"curves of the training, for a browser: {page}"
    yield "all runs on one page: nmtkit report; two systems side by side: nmtkit compare"
