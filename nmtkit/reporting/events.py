"""Training's metrics as TensorBoard's event files, an optional extra."""

from collections.abc import Mapping
from pathlib import Path


class EventWriter:
    """Writes event files that `tensorboard --logdir FOLDER` shows."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Write to `folder`; what a killed run wrote there of `first_step` and later is hidden."""
        from torch.utils.tensorboard import SummaryWriter  # an optional extra

        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, metrics: Mapping[str, object]) -> None:
        """Add the numbers of a step, under their names, at `metrics["step"]`."""
        for name, value in metrics.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, float(value), metrics["step"])
        self._writer.flush()  # a step that a checkpoint counts is not written again after a kill

    def close(self) -> None:
        """End the file."""
        self._writer.close()
