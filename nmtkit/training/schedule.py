"""The learning rate (section 5.3)."""


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Return d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), times `scale` (equation 3).

    Steps are counted from 1.
    """
    rate: float = scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
    return rate
