"""Run all stages in order and show the results."""

from collections.abc import Iterator
from importlib import import_module

from pydantic import BaseModel

from nmtkit import progress
from nmtkit.cli.cost import warn_if_long
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.evaluation.scores import read_scores
from nmtkit.evaluation.translations import translated_sets
from nmtkit.files import DamagedError, read_record
from nmtkit.reporting.facts import Results, Sample, StageResult
from nmtkit.reporting.tables import print_results
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.stages.code import other_code
from nmtkit.store import MEASUREMENTS, Artifact

N_SAMPLES = 5


def run_all(chain: Chain, *, as_json: bool) -> None:
    """Run every stage that is not fresh, then print the results."""
    warn_if_long(chain)
    for stage in STAGES:
        if artifact := chain.find(stage):
            progress.say(f"{stage}: fresh, {artifact.path}")
            chain.tell_code(artifact)
        else:
            _run(stage, chain)
    print_results(results(chain), as_json=as_json)


def _run(stage: str, chain: Chain) -> Artifact:
    """Run one stage, imported only now: if all stages are done, torch is not needed."""
    artifact: Artifact = import_module(f"nmtkit.stages.{stage}").run(chain)
    return artifact


def results(chain: Chain) -> Results:
    """Collect the results of a finished chain.

    Raises:
        UserError: a stage is not done, or a file that is shown was altered.
    """
    found = {stage: chain.need(stage) for stage in STAGES}
    first = translated_sets(found["translate"])[0]
    src, hyps, references = first.read()
    spread = [len(src) * i // N_SAMPLES for i in range(min(N_SAMPLES, len(src)))]
    return Results(
        [
            StageResult(
                stage, _summary(stage, artifact), str(artifact.path), other_code(artifact.manifest)
            )
            for stage, artifact in found.items()
        ],
        [Sample(src[i], references[0][i] if references else None, hyps[i]) for i in spread],
        read_scores(found["score"]),
    )


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


def _summary(stage: str, artifact: Artifact) -> str:
    try:
        parts = list(read_record(artifact.path / MEASUREMENTS, _Measured).parts())
    except DamagedError:
        parts = [f"{MEASUREMENTS} is damaged"]
    if stage == "prepare":
        counts = PreparedCorpus(artifact).counts()
        parts += [f"{counts.sizes['train'].pairs:,} pairs", f"vocabulary {counts.vocabulary:,}"]
    return ", ".join(parts)
