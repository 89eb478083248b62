"""The learning rate (section 5.3)."""


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3), times `scale`.

    `step` counts from 1.
    """
    rate: float = scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
    return rate
