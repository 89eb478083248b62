"""The speed of training, averaged over the last steps."""

from nmtkit.model.cost import update_flops
from nmtkit.recipe import ModelConfig

DECAY = 0.95  # weight of a step relative to the one after it: an average over about 20 steps


class Speed:
    """A moving average of the speed of training."""

    def __init__(self, config: ModelConfig, n_rows: int, *, length: int, peak_flops: float) -> None:
        """Start; sentences have `length` tokens, and `peak_flops` is FLOP/s, 0 if not known."""
        self._config, self._n_rows, self._length = config, n_rows, length
        self._peak_flops = peak_flops
        self._tokens = self._flops = self._seconds = 0.0

    def add(self, src_tokens: int, tgt_tokens: int, seconds: float) -> None:
        """Count a step."""
        flops = update_flops(self._config, self._n_rows, src_tokens, tgt_tokens, self._length)
        self._tokens = DECAY * self._tokens + tgt_tokens
        self._flops = DECAY * self._flops + flops
        self._seconds = DECAY * self._seconds + seconds

    def parts(self) -> list[str]:
        """Return target tokens/s and, if the peak is known, MFU (of real tokens)."""
        parts = [f"{self._tokens / self._seconds:,.0f} target tokens/s"]
        if self._peak_flops:
            parts.append(f"{self._flops / self._seconds / self._peak_flops:.1%} MFU")
        return parts
