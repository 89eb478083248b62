"""`--force`: delete the artifacts that a command rebuilds, once their inputs are verified."""

import os
from collections.abc import Sequence

from nmtkit.stages.pipeline import INPUTS, Pipeline, upstream_stage
from nmtkit.stages.training_state import read_note
from nmtkit.store.artifacts import verify
from nmtkit.store.code_version import is_other_code
from nmtkit.utils import progress


def delete_forced(pipeline: Pipeline) -> None:
    """Delete the artifacts that `--force` rebuilds; they are then built like missing ones.

    If rebuilding is stopped, the same command without `--force` finishes it. The draft of a
    training is deleted if other code, or another corpus, was used for it.
    """
    # `run` and each of its stages call this function: only the first call may delete.
    stages = pipeline.undeleted
    pipeline.undeleted = ()
    if not stages:
        return
    _verify_inputs(pipeline, stages)
    # An artifact is deleted before its input: a kill leaves no artifact without its input.
    for stage in reversed(stages):
        fingerprint = pipeline.fingerprint(stage)
        place = pipeline.store.place(stage, fingerprint)
        with pipeline.store.writing(stage, fingerprint):
            if os.path.lexists(place):
                progress.log(f"{stage}: deleting {place}")
                pipeline.store.free(place)
            # Drafts of other stages record their inputs in a journal, and start over.
            if stage == "train":
                _delete_old_draft(pipeline)


def _delete_old_draft(pipeline: Pipeline) -> None:
    """Delete the draft of a training whose steps other code, or another corpus, was used for."""
    draft = pipeline.store.draft_place("train", pipeline.fingerprint("train"))
    note = read_note(draft)
    if note is None:
        return
    # Notes of earlier versions record no inputs.
    has_other_inputs = bool(note.inputs) and note.inputs != pipeline.inputs("train")
    if is_other_code(note.code) or has_other_inputs:
        progress.log(f"train: deleting {draft}")
        pipeline.store.free(draft)


def _verify_inputs(pipeline: Pipeline, stages: Sequence[str]) -> None:
    """Verify everything that stages read: what is deleted can then be rebuilt.

    Args:
        stages: The stages, in their order.

    Raises:
        UserError: An input is missing or damaged.
    """
    upstream = upstream_stage(stages[0])
    if upstream is not None:
        verify(pipeline.need(upstream))
    for stage in stages:
        bundle = pipeline.bundle(stage)
        if bundle is not None:
            verify(bundle.artifact)
        # Reading texts may take minutes, so they are read only if there is something to lose.
        if not pipeline.store.place(stage, pipeline.fingerprint(stage)).exists():
            continue
        for key in INPUTS.get(stage, ()):
            for corpus in pipeline.corpora[key]:
                # Errors may be at the end of a text, such as a missing line.
                with progress.prefix(stage):
                    for _ in corpus.rows(pipeline.downloads):
                        pass
