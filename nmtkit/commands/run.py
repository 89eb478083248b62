"""Run all stages in order and show the results."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact, DamagedError, read_record
from nmtkit.reporting.facts import Results, Sample, StageResult
from nmtkit.reporting.tables import print_results
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.stages.chain import STAGES, Chain

N_SAMPLES = 5


def run_all(chain: Chain) -> None:
    """Run every stage that is not fresh, then print the results."""
    for stage in STAGES:
        if artifact := chain.find(stage):
            progress.say(f"{stage}: fresh, {artifact.path}")
        else:
            _run(stage, chain)
    print_results(results(chain))


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
    corpus = chain.recipe.corpus
    src, references = (
        _lines(found["prepare"], f"test.{lang}") for lang in (corpus.src_lang, corpus.tgt_lang)
    )
    hypotheses = _lines(found["translate"], "hypotheses.txt")
    spread = [len(src) * i // N_SAMPLES for i in range(min(N_SAMPLES, len(src)))]
    return Results(
        [
            StageResult(stage, _summary(stage, artifact), str(artifact.path))
            for stage, artifact in found.items()
        ],
        [Sample(src[i], references[i], hypotheses[i]) for i in spread],
        artifacts.read_json(_verified(found["score"], "scores.json")),
    )


def _verified(artifact: Artifact, name: str) -> Path:
    return artifacts.verify(artifact, name).file(name)


def _lines(artifact: Artifact, name: str) -> list[str]:
    return list(read_lines(TextFile(_verified(artifact, name))))


class _Size(BaseModel):
    pairs: int


class _Counts(BaseModel):
    """The values of `counts.json` that are shown."""

    train_size: _Size
    vocabulary: int


class _Averaged(BaseModel):
    """The values of `averaged.json` that are shown."""

    steps: list[int]


class _Measured(BaseModel):
    """The measurements that are shown; they are not hashed."""

    seconds: float
    steps: int | None = None
    timed_steps: int | None = None
    tgt_tokens_per_second: float | None = None
    sentences_per_second: float | None = None

    def parts(self) -> Iterator[str]:
        """Yield each in words."""
        yield f"{self.seconds:,.1f} s"
        if self.steps is not None:
            yield f"{self.steps:,} steps"
        if self.tgt_tokens_per_second is not None:
            is_of_all = self.timed_steps in (None, self.steps)
            of_some = "" if is_of_all else f" in the {self.timed_steps:,} that were measured"
            yield f"{self.tgt_tokens_per_second:,.0f} target tokens/s{of_some}"
        if self.sentences_per_second is not None:
            yield f"{self.sentences_per_second:,.1f} sentences/s"


def _summary(stage: str, artifact: Artifact) -> str:
    try:
        parts = list(read_record(artifact.path / artifacts.MEASUREMENTS, _Measured).parts())
    except DamagedError:
        parts = [f"{artifacts.MEASUREMENTS} is damaged"]
    if stage == "prepare":
        counts = read_record(_verified(artifact, "counts.json"), _Counts)
        parts += [f"{counts.train_size.pairs:,} pairs", f"vocabulary {counts.vocabulary:,}"]
    if stage == "average":
        steps = read_record(_verified(artifact, "averaged.json"), _Averaged).steps
        parts += [f"steps {', '.join(f'{step:,}' for step in steps)}"]
    return ", ".join(parts)
