"""Which models CTranslate2 can run. No torch here, which a converted model does not need."""

from nmtkit.recipe import ModelConfig


def unsupported(config: ModelConfig) -> str | None:
    """Return why CTranslate2 can't run a model, or None if it can."""
    if config.neighbourhood is not None:
        return (
            "CTranslate2 runs no model with restricted self-attention, neighbourhood = "
            f"{config.neighbourhood:,}"
        )
    width = config.d_model / config.n_heads
    if not config.d_k == config.d_v == width:
        return (
            f"CTranslate2 runs no model with d_k = {config.d_k:,} and d_v = {config.d_v:,}, only "
            f"with d_model / n_heads = {width:,g} for both"
        )
    return None
