"""All stages in order, and what a person wants to see at the end."""

from importlib import import_module

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus.sources import TextFile, read_lines
from nmtkit.reporting.facts import Results, Sample, StageResult
from nmtkit.reporting.tables import print_results
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
    """Collect the results of a finished chain."""
    found = {stage: chain.need(stage) for stage in STAGES}
    corpus = chain.recipe.corpus
    prepared = found["prepare"].path
    src = list(read_lines(TextFile(prepared / f"test.{corpus.src_lang}")))
    references = list(read_lines(TextFile(prepared / f"test.{corpus.tgt_lang}")))
    hypotheses = list(read_lines(TextFile(found["translate"].path / "hypotheses.txt")))
    spread = [len(src) * i // N_SAMPLES for i in range(min(N_SAMPLES, len(src)))]
    return Results(
        [
            StageResult(stage, _summary(stage, artifact), str(artifact.path))
            for stage, artifact in found.items()
        ],
        [Sample(src[i], references[i], hypotheses[i]) for i in spread],
        artifacts.read_json(found["score"].path / "scores.json"),
    )


def _summary(stage: str, artifact: Artifact) -> str:
    measured = artifacts.read_json(artifact.path / artifacts.MEASUREMENTS)
    summary = f"{measured['seconds']:,.1f} s"
    if stage == "prepare":
        counts = artifacts.read_json(artifact.path / "counts.json")
        summary += f", {counts['train_size']['pairs']:,} pairs, vocabulary {counts['vocabulary']:,}"
    if stage == "train":
        speed = measured["tgt_tokens_per_second"]
        summary += f", {measured['steps']:,} steps, {speed:,.0f} target tokens/s"
    if stage == "average":
        steps = artifacts.read_json(artifact.path / "averaged.json")["steps"]
        summary += f", steps {', '.join(f'{step:,}' for step in steps)}"
    if stage == "translate":
        summary += f", {measured['sentences_per_second']:,.1f} sentences/s"
    return summary
