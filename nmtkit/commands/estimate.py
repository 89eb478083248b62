"""A rough estimate of how long training will take, made before anything is downloaded."""

from nmtkit import progress
from nmtkit.cli.status import states
from nmtkit.duration import duration
from nmtkit.model.cost import training_flops
from nmtkit.stages.chain import Chain

WEEK = 7 * 86_400.0
SLOW = 1e10  # FLOP/s of a slow machine; what takes it less than a week is not looked into
PEAK_SECONDS = 2.0
TYPICAL_MFU = 0.6  # a model of d_model 512 on a CPU reaches 0.65 to 0.75


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
