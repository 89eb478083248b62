"""What fairseq calls our weights, Hugging Face's Marian mostly too, and what programs can't run."""

from nmtkit.errors import UserError
from nmtkit.recipe import ModelConfig
from nmtkit.tables import read_tables

TABLES: dict[str, dict[str, list[str]]] = read_tables(__file__, "names.toml")


def check_runs(program: str, config: ModelConfig, norms: tuple[str, ...]) -> None:
    """Refuse a model that another program does not run."""
    is_plain = config.d_k == config.d_v == config.d_model / config.n_heads
    if config.norm not in norms or config.neighbourhood is not None or not is_plain:
        raise UserError(
            f"{program} runs no model with norm = {config.norm}, d_k = {config.d_k:,}, d_v = "
            f"{config.d_v:,} and neighbourhood = {config.neighbourhood}, only with norm = "
            f"{' or '.join(norms)}, d_k = d_v = d_model / n_heads and full self-attention; use "
            "nmtkit translate --engine torch"
        )


def parts_of(name: str) -> list[str]:
    """Return fairseq's names of the parts that our weight `name` stacks, first to last."""
    if name in TABLES["outside_layers"]:
        return TABLES["outside_layers"][name]
    side, layer, *sublayer, kind = name.split(".")
    if sublayer[0] == "residuals":
        parts = [TABLES["norms"][side][int(sublayer[1])]]
    else:
        parts = TABLES["of_sublayers"][".".join(sublayer)]
    return [f"{side}.layers.{layer}.{part}.{kind}" for part in parts]
