"""All five stages of a recipe, one after the other."""

from typing import Any

from nmtkit.evaluation.degenerate import degenerate_warning
from nmtkit.evaluation.translations import read_scores, translated_sets
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.store.provenance import read_run_record
from nmtkit.utils import progress

N_SAMPLES = 5


def run_all(pipeline: Pipeline) -> dict[str, Any]:
    """Run every stage that is not finished.

    Returns:
        "stages": name, summary and path of every artifact; "samples": some translations of the
        first test set; "scores": the scores of all test sets.
    """
    delete_forced(pipeline)
    artifacts: dict[str, Artifact] = {}
    for stage in STAGES:
        # A stage would find its artifact too, but only after slow imports.
        artifact = pipeline.find(stage)
        if artifact is not None:
            progress.log(f"{stage}: done, {artifact.path}")
        else:
            artifact = _run_stage(stage, pipeline)
        artifacts[stage] = artifact

    stages = []
    for stage, artifact in artifacts.items():
        summary = _summary(stage, artifact)
        stages.append({"name": stage, "summary": summary, "path": str(artifact.path)})
    for translated in translated_sets(artifacts["translate"]):
        src, hyps, _ = translated.read()
        if warning := degenerate_warning(zip(src, hyps, strict=True)):
            progress.warn_once(f"{translated.name}: {warning}")
    return {
        "stages": stages,
        "samples": _samples(artifacts["translate"]),
        "scores": read_scores(artifacts["score"]),
    }


def _run_stage(stage: str, pipeline: Pipeline) -> Artifact:
    """Run one stage. Its module is imported here because a rerun should not import torch."""
    match stage:
        case "prepare":
            from nmtkit.stages import prepare

            return prepare.run(pipeline)
        case "train":
            from nmtkit.stages import train

            return train.run(pipeline)
        case "average":
            from nmtkit.stages import average

            return average.run(pipeline)
        case "translate":
            from nmtkit.stages import translate

            return translate.run(pipeline)
        case "score":
            from nmtkit.stages import score

            return score.run(pipeline)
    raise ValueError(f"there is no stage {stage}")


def _summary(stage: str, artifact: Artifact) -> str:
    """Return the recorded duration, speed and size of an artifact in one line."""
    # Records may be lost or of another version: parts that are missing are left out.
    record = read_run_record(artifact.path)
    parts = []
    if record.seconds is not None:
        parts.append(f"{record.seconds:,.1f} s")
    if record.steps:
        parts.append(f"{record.steps:,} steps")
    if record.tgt_tokens_per_second:
        parts.append(f"{record.tgt_tokens_per_second:,.0f} target tokens/s")
    if stage == "prepare":
        from nmtkit.corpus.prepared import PreparedCorpus

        counts = PreparedCorpus(artifact).counts()
        parts.append(f"{counts.sizes['train'].pairs:,} pairs")
        parts.append(f"vocabulary {counts.vocabulary:,}")
    return ", ".join(parts)


def _samples(translated: Artifact) -> list[dict[str, str | None]]:
    """Return some translations, spread evenly over the first test set. It may have few lines."""
    src, hyps, references = translated_sets(translated)[0].read()
    n_samples = min(N_SAMPLES, len(src))
    samples = []
    for number in range(n_samples):
        i = len(src) * number // N_SAMPLES
        reference = references[0][i] if references else None
        samples.append({"src": src[i], "reference": reference, "hypothesis": hyps[i]})
    return samples
