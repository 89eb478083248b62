"""The setup that training shares with its trials (bench, plan): processes, text, model, device."""

from collections.abc import Sequence

from nmtkit.corpus.prepared import SIDES, PreparedCorpus, Split
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.code_version import code_identity
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.training.acceleration import MAX_LEVEL, Acceleration
from nmtkit.training.batches import Pairs
from nmtkit.training.distributed import Group, is_worker
from nmtkit.training.launch import launch
from nmtkit.training.memory import max_fitting_tokens
from nmtkit.training.setup import Setup, common_acceleration
from nmtkit.utils import progress
from nmtkit.utils.hardware import check_has_code


def start_processes(pipeline: Pipeline, command: Sequence[str]) -> bool:
    """Run a command in several processes, if the user requested several and this is not one.

    Args:
        pipeline: The pipeline, whose recipe and overrides are appended to the command.
        command: The name of the command and its options, without `nmtkit`.

    Returns:
        Whether the processes ran. All of them have succeeded.
    """
    # A worker runs the same command, and must not start workers of its own.
    if is_worker():
        return False
    n_processes = pipeline.settings.n_processes()
    if n_processes == 1:
        return False
    name = command[0]
    progress.log(f"{name}: {n_processes} processes")
    arguments = pipeline.child_arguments(command)
    launch(n_processes, arguments, lambda message: progress.warn(f"{name}: {message}"))
    return True


def open_pairs(prepared: PreparedCorpus, split: Split, weights: Sequence[float] = ()) -> Pairs:
    """Open the token ids of a prepared corpus.

    Args:
        prepared: The artifact of `prepare`.
        split: The part to open: train or dev.
        weights: The weight of each training corpus; none: all pairs are drawn once per epoch.
    """
    src, tgt = (prepared.ids(split, side) for side in SIDES)
    corpora = []
    for counts, weight in zip(prepared.counts().train, weights, strict=False):
        corpora.append((counts["kept"], weight))
    return Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets, tuple(corpora))


def choose_setup(pipeline: Pipeline, group: Group) -> Setup:
    """Choose the precision, the level and the size of micro-batches that all processes use.

    Processes differ in their GPUs and memory; all of them train as the weakest one can.

    Args:
        pipeline: The recipe and the settings of this process.
        group: The processes that train together. All of them call this function.

    Raises:
        UserError: The processes have different recipes or versions of nmtkit, or torch does not
            support the GPU.
    """
    model = pipeline.recipe.model
    training = pipeline.recipe.training
    settings = pipeline.settings
    device = group.device
    check_has_code(device)
    # Processes on several nodes may have been started with different files.
    hashes = {
        "artifact": pipeline.fingerprint("train"),
        "code": compute_fingerprint("train", code_identity()),
    }
    for name, text in hashes.items():
        number = int(text[:13], 16)  # 52 bits, which float64 holds exactly
        group.check_same(f"the {name} of this training", number, "recipe, --set and nmtkit")

    dtype = settings.torch_dtype(device, model.d_model)
    acceleration = Acceleration.choose(device, dtype, MAX_LEVEL[settings.accelerate])
    acceleration = common_acceleration(acceleration, group)

    # The size of the vocabulary is only estimated, since this is also used before `prepare`.
    max_tokens = settings.max_tokens
    if max_tokens is None:
        n_rows = model.embedding_rows(pipeline.expected_vocabulary())
        max_tokens = max_fitting_tokens(device, model, n_rows, acceleration.dtype, group.size)
    # A micro-batch larger than an update is never filled. Bins have some padding, so that an update
    # takes more positions than tokens: they are not limited.
    use_bins = device.type == "cuda"
    if not use_bins:
        tokens_per_update = max(training.src_tokens_per_update, training.tgt_tokens_per_update)
        max_tokens = min(tokens_per_update, max_tokens)
    return Setup(
        model=model,
        training=training,
        group=group,
        acceleration=acceleration,
        max_tokens=int(group.min(max_tokens)),
        # With the user's own maximum, dropout is the same on any number of processes.
        multiple_of=group.size if settings.max_tokens is None else 1,
        use_bins=use_bins,
    )
