"""How fast training goes, over the last steps, and what follows from that."""

from nmtkit.model.cost import update_flops
from nmtkit.recipe import ModelConfig

MEMORY = 0.95  # what a step counts for, of what the one after it counts for: some 20 steps


class Speed:
    """Speed of training, as its steps tell it."""

    def __init__(self, config: ModelConfig, n_rows: int, *, length: int, peak_flops: float) -> None:
        """Know the model, the mean `length` of its sentences and the FLOP/s there are, or 0."""
        self._config, self._n_rows, self._length = config, n_rows, length
        self._peak_flops = peak_flops
        self._steps = self._tokens = self._flops = self._seconds = 0.0

    def add(self, src_tokens: int, tgt_tokens: int, seconds: float) -> None:
        """Count a step."""
        flops = update_flops(self._config, self._n_rows, src_tokens, tgt_tokens, self._length)
        self._steps = MEMORY * self._steps + 1
        self._tokens = MEMORY * self._tokens + tgt_tokens
        self._flops = MEMORY * self._flops + flops
        self._seconds = MEMORY * self._seconds + seconds

    def describe(self, steps_left: int) -> str:
        """Target tokens/s, MFU (real tokens only) where the peak is known, and the time left."""
        shown = f"{self._tokens / self._seconds:,.0f} target tokens/s"
        if self._peak_flops:
            shown += f", {self._flops / self._seconds / self._peak_flops:.1%} MFU"
        return f"{shown}, {steps_left * self._seconds / self._steps / 60:,.0f} min left"
