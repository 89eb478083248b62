"""Names of weights in fairseq and transformers, and checks of what other programs can represent."""

import re

from nmtkit.config.recipe import ModelConfig
from nmtkit.corpus.special_tokens import SPECIALS
from nmtkit.corpus.subword import Subword
from nmtkit.tables import read_tables
from nmtkit.utils.errors import UserError, shown

UNUSED = re.compile(r"<unused \d+>")  # the names that exported vocabularies give to unused rows

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


def check_symbols(subword: Subword, program: str) -> None:
    """Refuse a vocabulary with pieces that `program` would take for symbols.

    Args:
        subword: The vocabulary; its first pieces are the symbols themselves.
        program: Its name in the plural, as in "tokenizers of Hugging Face".

    Raises:
        UserError: A piece has the name of a symbol or of an unused row.
    """
    for piece in subword.pieces(range(len(SPECIALS), subword.n_tokens)):
        if piece in SPECIALS or UNUSED.fullmatch(piece):
            raise UserError(
                f"the vocabulary has the subword {shown(piece)}, which {program} cannot "
                "distinguish from the symbol of this name; use nmtkit translate"
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
