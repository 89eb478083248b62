"""All stages in order, and what a person wants to see at the end."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ValidationError

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
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
    """Run one stage, imported when its turn comes: a chain that is fresh needs no torch."""
    artifact: Artifact = import_module(f"nmtkit.stages.{stage}").run(chain)
    return artifact


def results(chain: Chain) -> Results:
    """Collect the results of a finished chain.

    Raises:
        UserError: a stage isn't done, or what is shown of it was altered.
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
        _json(found["score"], "scores.json"),
    )


def _lines(artifact: Artifact, name: str) -> list[str]:
    return list(read_lines(TextFile(artifacts.verify(artifact, name).path / name)))


def _json(artifact: Artifact, name: str) -> Any:
    return artifacts.read_json(artifacts.verify(artifact, name).path / name)


class _Measured(BaseModel):
    """What is shown of an artifact's measurements, which no hash guards."""

    seconds: float
    steps: int | None = None
    timed_steps: int | None = None
    tgt_tokens_per_second: float | None = None
    sentences_per_second: float | None = None

    def parts(self) -> Iterator[str]:
        """Each as a person reads it."""
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
    measurements = artifact.path / artifacts.MEASUREMENTS
    try:
        parts = list(_Measured.model_validate_json(measurements.read_bytes()).parts())
    except (OSError, ValidationError):
        parts = [f"{measurements.name} is damaged"]
    if stage == "prepare":
        counts = _json(artifact, "counts.json")
        parts += [
            f"{counts['train_size']['pairs']:,} pairs",
            f"vocabulary {counts['vocabulary']:,}",
        ]
    if stage == "average":
        steps = _json(artifact, "averaged.json")["steps"]
        parts += [f"steps {', '.join(f'{step:,}' for step in steps)}"]
    return ", ".join(parts)
