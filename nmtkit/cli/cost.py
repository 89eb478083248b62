"""What a training cost, from its measurements, and what it will take, roughly, before it begins."""

from pydantic import BaseModel

from nmtkit import progress
from nmtkit.cli.status import states
from nmtkit.duration import duration
from nmtkit.files import DamagedError, read_record
from nmtkit.model.cost import TYPICAL_LENGTH, training_flops, update_flops
from nmtkit.model.description import Description
from nmtkit.reporting.cost import TrainingCost, training_cost
from nmtkit.stages.chain import Chain
from nmtkit.store import MEASUREMENTS, Artifact

WEEK = 7 * 86_400.0
SLOW = 1e10  # FLOP/s of a slow machine; what takes it less than a week is not looked into
PEAK_SECONDS = 2.0
TYPICAL_MFU = 0.6


class _Measured(BaseModel):
    """The measurements that cost depends on."""

    device_name: str
    processes: int
    steps: int
    timed_steps: int
    timed_seconds: float
    timed_src_tokens: int
    timed_tgt_tokens: int


def cost_of(trained: Artifact) -> TrainingCost | None:
    """Return the cost of a training, or nothing if its measurements do not say.

    If some steps were not measured, they are taken to be like the others.
    """
    try:
        measured = read_record(trained.path / MEASUREMENTS, _Measured)
    except DamagedError:
        return None
    if not measured.timed_steps:
        return None
    share = measured.steps / measured.timed_steps
    model = Description.load(trained.path)
    src, tgt = measured.timed_src_tokens, measured.timed_tgt_tokens
    return training_cost(
        seconds=share * measured.timed_seconds,
        n_devices=measured.processes,
        device=measured.device_name,
        product_flops=share * update_flops(model.config, model.n_rows, src, tgt, TYPICAL_LENGTH),
    )


def warn_if_long(chain: Chain) -> None:
    """Say that training would take more than a week on this machine, if it would.

    A training that is done or begun is not mentioned.
    """
    recipe = chain.recipe
    (train,) = (state for state in states(chain) if state.stage == "train")
    if train.state not in ("missing", "unknown"):
        return
    n_rows = recipe.model.rows_for(chain.expected_vocabulary())
    flops = training_flops(recipe.model, recipe.training, n_rows)
    if flops < SLOW * WEEK:
        return
    from nmtkit.fast.peak import measured_peak  # imports torch

    device = chain.machine.torch_device()
    peak = measured_peak(device, PEAK_SECONDS, chain.machine.torch_dtype(device))
    n_devices = chain.machine.n_processes() if device.type == "cuda" else 1
    seconds = flops / (TYPICAL_MFU * peak * n_devices)
    if seconds > WEEK:
        progress.say(
            f"warning: training {recipe.name} would take about {duration(seconds)} on this "
            f"machine ({device.type}); `nmtkit plan {chain.command}` measures it"
        )
