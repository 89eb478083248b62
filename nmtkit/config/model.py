"""The sections of a recipe that bundles have, too: the Transformer and beam search.

Without the others, opening a bundle does not import the readers of text. See `config.recipe` for
keys with a default.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from nmtkit.utils.errors import UserError
from nmtkit.utils.section import Positive, Section

# Deviation: the paper names none; this is that of its published code (tensor2tensor at 3d9c62f2).
LAYER_NORM_EPSILON = 1e-6

# Sizes of a model: larger than any machine can hold, but no size in bytes overflows 64 bits.
Width = Annotated[int, Field(ge=1, le=2**18)]
Length = Annotated[int, Field(ge=1, le=2**24)]
Depth = Annotated[int, Field(ge=1, le=10_000)]
# Rounded to a multiple of 1 / 65,536 (`fast.cpu`), it must be less than 1.
Dropout = Annotated[float, Field(ge=0, le=0.9999)]


class ModelConfig(Section):
    """The Transformer (section 3), with the variations of Table 3."""

    n_layers: Depth  # N, of the encoder and of the decoder
    n_decoder_layers: Depth | None = None  # if the decoder has another N than the encoder
    d_model: Width
    d_ff: Width
    n_heads: Width  # h
    d_k: Width
    d_v: Width
    attention_bias: bool = False  # of the attention projections
    # Of the feed-forward layers. "swish" is x sigmoid(x), as in most models of OPUS-MT; equation 2
    # has "relu".
    activation: Literal["relu", "swish"] = "relu"
    output_bias: bool = False  # of the logits, as in Marian
    # r, the positions that self-attention sees (section 4). The encoder sees r // 2 before its own
    # and (r - 1) // 2 after it, the decoder its own and r - 1 before it. If left out: all.
    neighbourhood: Length | None = None
    dropout: Dropout  # P_drop, of sub-layer outputs and embeddings
    attention_dropout: Dropout = 0.0  # of attention weights (section 6.3)
    positions: Literal["sinusoid", "fairseq", "learned"]  # "fairseq": its table of sinusoids
    max_positions: Length  # longest training sentence, and rows of the learned positions
    norm: Literal["post", "pre"]
    layer_norm_epsilon: Positive = LAYER_NORM_EPSILON
    tie_embeddings: bool  # share source, target and pre-softmax matrix (section 3.4)
    vocabulary_multiple: Length  # round up the rows of the embeddings to a multiple of this

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.positions != "learned" and self.d_model % 2:
            raise ValueError(
                f'd_model = {self.d_model} must be even for positions = "{self.positions}"'
            )
        if self.positions == "fairseq" and self.d_model < 4:
            raise ValueError(f'd_model = {self.d_model} is too small for positions = "fairseq"')
        return self

    @property
    def decoder_layers(self) -> int:
        """The number of layers of the decoder."""
        return self.n_layers if self.n_decoder_layers is None else self.n_decoder_layers

    def embedding_rows(self, n_tokens: int) -> int:
        """Return the number of rows of the embeddings for a vocabulary of `n_tokens`."""
        return -(-n_tokens // self.vocabulary_multiple) * self.vocabulary_multiple


class DecodingConfig(Section):
    """Beam search (section 6.1)."""

    # The paper uses 4; beams of hundreds translate worse, and exhaust memory.
    beam_size: Annotated[int, Field(ge=1, le=1_024)]
    # alpha of ((5 + length) / 6) ** alpha (GNMT, equation 14); with 100, it is soon infinite.
    length_penalty: Annotated[float, Field(ge=0, le=10)]
    # "fairseq": length ** alpha instead. Both lengths include the EOS.
    length_penalty_formula: Literal["gnmt", "fairseq"] = "gnmt"
    # Maximum length of a translation beyond that of its source.
    max_extra_tokens: Annotated[int, Field(ge=0, le=1_000)]
    # Maximum length of any translation, EOS excluded, as imported models have it. If left out:
    # none.
    max_length: Length | None = None

    def max_target_length(self, src_length: int) -> int:
        """Return the maximum length of a translation, for a source of `src_length` tokens.

        Both lengths exclude the EOS.
        """
        length = src_length + self.max_extra_tokens
        return length if self.max_length is None else min(length, self.max_length)

    def with_values(
        self,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        length_penalty_formula: str | None = None,
    ) -> "DecodingConfig":
        """Return these settings with other values; None keeps a value.

        Raises:
            UserError: A value is not valid.
        """
        values = self.model_dump()
        if beam_size is not None:
            values["beam_size"] = beam_size
        if length_penalty is not None:
            values["length_penalty"] = length_penalty
        if length_penalty_formula is not None:
            values["length_penalty_formula"] = length_penalty_formula
        try:
            return DecodingConfig.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise UserError(f"{first['loc'][0]} = {first['input']!r}: {first['msg']}") from None


# Section 6.1, for models without a recipe.
PAPERS_DECODING = DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=50)
