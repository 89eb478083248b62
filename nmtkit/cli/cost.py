"""What a training cost, from its measurements."""

from pydantic import BaseModel

from nmtkit.files import DamagedError, read_record
from nmtkit.model.cost import TYPICAL_LENGTH, update_flops
from nmtkit.model.description import Description
from nmtkit.reporting.cost import TrainingCost, training_cost
from nmtkit.store import MEASUREMENTS, Artifact


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
    """Return the cost of a training, steps that were not measured included, if it can be known."""
    try:
        measured = read_record(trained.path / MEASUREMENTS, _Measured)
    except DamagedError:
        return None
    if not measured.timed_steps:
        return None
    share = measured.steps / measured.timed_steps
    seconds = share * measured.timed_seconds
    model = Description.load(trained.path)
    src, tgt = measured.timed_src_tokens, measured.timed_tgt_tokens
    flops = share * update_flops(model.config, model.n_rows, src, tgt, TYPICAL_LENGTH)
    return training_cost(seconds, measured.processes, measured.device_name, flops)
