"""Which models CTranslate2 can run. No torch here, which a converted model does not need."""

from nmtkit.errors import UserError
from nmtkit.recipe import ModelConfig


def check_supported(config: ModelConfig) -> None:
    """Check that CTranslate2 can run a model.

    Raises:
        UserError: It has restricted self-attention, or heads of another width than CTranslate2's.
    """
    if config.neighbourhood is not None:
        raise UserError(
            "CTranslate2 runs no model with restricted self-attention, neighbourhood = "
            f"{config.neighbourhood:,}; use --engine torch"
        )
    width = config.d_model / config.n_heads
    if not config.d_k == config.d_v == width:
        raise UserError(
            f"CTranslate2 runs no model with d_k = {config.d_k:,} and d_v = {config.d_v:,}, only "
            f"with d_model / n_heads = {width:,g} for both; use --engine torch"
        )
