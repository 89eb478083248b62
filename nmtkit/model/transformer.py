"""The Transformer (section 3), top to bottom.

Dimensions: S source tokens and T target tokens; D = d_model, H = n_heads, K = d_k, U = d_v, V rows
of the embedding matrix. The tokens of a batch may also have two dimensions (B, L): where a shape
begins with S or T, it then begins with B, and where S or T follows H, B precedes H.

`nmtkit.fast` computes the same faster. From outside, it replaces `mask` of the `Transformer`, and
`attention` and `dropout` of the modules.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nmtkit.config.model import ModelConfig
from nmtkit.model.attention import Layout, attention, attention_window, visible

MIN_SINUSOIDS = 16  # positions; those of a bin are never fewer

Sublayer = Callable[[Tensor], Tensor]  # (T, D) to (T, D)
Mask = Any  # the positions that a query may see; for equation 1, a bool tensor (T, S)


class Transformer(nn.Module):
    """Encoder and decoder (figure 1)."""

    encoder: Sequence["EncoderLayer"]
    decoder: Sequence["DecoderLayer"]

    def __init__(
        self, config: ModelConfig, n_rows: int, dtype: torch.dtype = torch.float32
    ) -> None:
        """Build a model with random float32 weights.

        Args:
            config: The sizes and variations.
            n_rows: Number V of rows of the embeddings.
            dtype: Data type of the activations.
        """
        super().__init__()
        self.config = config
        # The two embeddings and the output matrix may be tied (section 3.4). Learned positions are
        # never tied.
        tgt_matrix = new_matrix(n_rows, config.d_model)
        tied = config.tie_embeddings
        src_matrix = tgt_matrix if tied else new_matrix(n_rows, config.d_model)
        self.tgt_embedding = Embedding(config, tgt_matrix, dtype)
        self.src_embedding = Embedding(config, src_matrix, dtype)
        self.encoder = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(config) for _ in range(config.n_layers)
        )
        self.decoder = nn.ModuleList(  # type: ignore[assignment]
            DecoderLayer(config) for _ in range(config.decoder_layers)
        )
        self.encoder_norm = final_norm(config)
        self.decoder_norm = final_norm(config)
        self._output = None if tied else new_matrix(n_rows, config.d_model)
        # Deviation: the paper has no bias here; models of Marian have one.
        self.output_bias = nn.Parameter(torch.zeros(n_rows)) if config.output_bias else None
        self.mask: Callable[..., Mask] = visible

    @property
    def output_matrix(self) -> Tensor:
        """Return the pre-softmax matrix (V, D); if tied, the embedding matrix (section 3.4)."""
        return self.tgt_embedding.weight if self._output is None else self._output

    def forward(
        self, src: Tensor, src_layout: Layout, tgt_in: Tensor, tgt_layout: Layout
    ) -> Tensor:
        """Compute the decoder output (T, D).

        The loss multiplies it with `output_matrix` in chunks: the logits of all tokens are never in
        memory at once.

        Args:
            src: Token ids of the source (S,).
            tgt_in: Token ids of the target, shifted by one (T,).
        """
        return self.decode(tgt_in, tgt_layout, self.encode(src, src_layout), src_layout)

    def encode(self, src: Tensor, src_layout: Layout) -> Tensor:
        """Compute the encoder output (S, D), the decoder's memory, for source `src` (S,)."""
        # Without a neighbourhood, every source token sees the whole sentence.
        window = attention_window(causal=False, neighbourhood=self.config.neighbourhood)
        mask = self.mask(src_layout, src_layout, window)
        x = self.src_embedding(src, src_layout.positions, src_layout.max_seqlen)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def decode(
        self, tgt_in: Tensor, tgt_layout: Layout, memory: Tensor, src_layout: Layout
    ) -> Tensor:
        """Compute the decoder output (T, D).

        Args:
            tgt_in: Token ids of the target, shifted by one (T,).
            memory: The encoder output (S, D).
            src_layout: The sentences of the source.
        """
        # The neighbourhood restricts self-attention only; all source tokens are visible.
        window = attention_window(causal=True, neighbourhood=self.config.neighbourhood)
        mask = self.mask(tgt_layout, tgt_layout, window)
        memory_mask = self.mask(tgt_layout, src_layout, attention_window(causal=False))
        x = self.tgt_embedding(tgt_in, tgt_layout.positions, tgt_layout.max_seqlen)
        for layer in self.decoder:
            x = layer(x, mask, layer.cross_attention.keys_values(memory), memory_mask)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def logits(self, x: Tensor) -> Tensor:
        """Multiply `x` (R, D) with the pre-softmax matrix: (R, V), in the precision of x."""
        bias = None if self.output_bias is None else self.output_bias.to(x.dtype)
        return nn.functional.linear(x, self.output_matrix.to(x.dtype), bias)


class Linear(nn.Linear):
    """x W^T + b in the precision of x.

    The weights remain float32: updates too small for 16 bits are not lost, and the gradients of
    micro-batches are summed in float32.
    """

    def reset_parameters(self) -> None:
        """Draw the weight as a whole, also where it merges several projections (`new_matrix`)."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Transform `x` (..., in)."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return nn.functional.linear(x, self.weight.to(x.dtype), bias)


class LayerNorm(nn.LayerNorm):
    """Layer normalization (Ba et al. 2016) in the precision of x, with sums in float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the vectors of `x` (..., D)."""
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return nn.functional.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        """Build a layer with random weights."""
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(2))

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Transform `x` (S, D)."""
        attend, feed = self.residuals
        x = attend(x, lambda y: self.self_attention(y, mask))
        return feed(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        """Build a layer with random weights."""
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(3))

    def forward(
        self, x: Tensor, mask: Mask, memory: tuple[Tensor, Tensor], memory_mask: Mask
    ) -> Tensor:
        """Transform `x` (T, D).

        Args:
            x: Tokens of the target.
            mask: The target tokens that a target token may see.
            memory: The layer's own keys (H, S, K) and values (H, S, U) of the memory.
            memory_mask: The source tokens that a target token may see.
        """
        attend, look, feed = self.residuals
        x = attend(x, lambda y: self.self_attention(y, mask))
        x = look(x, lambda y: self.cross_attention(y, *memory, memory_mask))
        return feed(x, self.feed_forward)  # type: ignore[no-any-return]


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))) (sections 3.1, 5.4).

    Deviation: norm = "pre" is x + Dropout(Sublayer(LayerNorm(x))). It became tensor2tensor's
    default in October 2017 (d5bdfcc8).
    """

    def __init__(self, config: ModelConfig) -> None:
        """Build the LayerNorm and the dropout around a sublayer."""
        super().__init__()
        self.norm = LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.is_post = config.norm == "post"

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Wrap `sublayer` around `x` (T, D)."""
        if self.is_post:
            return self.norm(x + self.dropout(sublayer(x)))  # type: ignore[no-any-return]
        return x + self.dropout(sublayer(self.norm(x)))  # type: ignore[no-any-return]


class MultiHeadAttention(nn.Module):
    """What attention within a sentence and attention to another one have in common."""

    out: "Linear"  # built last, since the order decides the random numbers of initialization

    def __init__(self, config: ModelConfig) -> None:
        """Take the sizes of the heads; subclasses build the projections."""
        super().__init__()
        self.heads, self.d_k, self.d_v = config.n_heads, config.d_k, config.d_v
        self.dropout = config.attention_dropout
        self.attention: Callable[..., Tensor] = attention

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Apply equation 1 to all heads, and project the result to (T, D).

        Args:
            q: Queries (H, T, K).
            k: Keys (H, S, K).
            v: Values (H, S, U).
            mask: The keys that a query may see.
        """
        dropout = self.dropout if self.training else 0.0
        # (H, T, U), whose heads are then concatenated to (T, H U)
        attended = self.attention(q, k, v, mask, dropout)
        return self.out(attended.transpose(-3, -2).flatten(-2))  # type: ignore[no-any-return]

    def split_heads(self, merged: Tensor, *widths: int) -> list[Tensor]:
        """Split a merged projection into tensors (H, T, width), one for each width.

        Args:
            merged: The projection (T, H times the sum of the widths).
            widths: Numbers of dimensions of a head.
        """
        parts = torch.split(merged, [self.heads * width for width in widths], dim=-1)
        return [torch.unflatten(part, -1, (self.heads, -1)).transpose(-3, -2) for part in parts]


class SelfAttention(MultiHeadAttention):
    """Multi-head self-attention (section 3.2.2) with merged projections."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the projections."""
        super().__init__(config)
        # The equations have no biases; the published code and the parameter counts of Table 3 do.
        bias = config.attention_bias
        self.qkv = Linear(config.d_model, self.heads * (2 * self.d_k + self.d_v), bias=bias)
        self.out = Linear(self.heads * self.d_v, config.d_model, bias=bias)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Let the tokens of `x` (T, D) attend to those that `mask` shows them."""
        q, k, v = self.split_heads(self.qkv(x), self.d_k, self.d_k, self.d_v)
        return self.attend(q, k, v, mask)


class CrossAttention(MultiHeadAttention):
    """Multi-head attention of the decoder to the encoder's output (section 3.2.3)."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the projections."""
        super().__init__(config)
        bias = config.attention_bias
        self.q = Linear(config.d_model, self.heads * self.d_k, bias=bias)
        self.kv = Linear(config.d_model, self.heads * (self.d_k + self.d_v), bias=bias)
        self.out = Linear(self.heads * self.d_v, config.d_model, bias=bias)

    def forward(self, x: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Let the tokens of `x` (T, D) attend to the memory.

        Args:
            x: Tokens of the target (T, D).
            k: Keys of the memory (H, S, K).
            v: Values of the memory (H, S, U).
            mask: The source tokens that a target token may see.
        """
        (q,) = self.split_heads(self.q(x), self.d_k)
        return self.attend(q, k, v, mask)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project the `memory` (S, D) to keys (H, S, K) and values (H, S, U)."""
        k, v = self.split_heads(self.kv(memory), self.d_k, self.d_v)
        return k, v


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (equation 2).

    Deviation: activation = "swish" is x sigmoid(x) (Ramachandran et al. 2017) instead of max(0, x),
    as in nearly all models that Marian trained for OPUS-MT.
    """

    def __init__(self, config: ModelConfig) -> None:
        """Build the two matrices."""
        super().__init__()
        self.is_swish = config.activation == "swish"
        self.w1 = Linear(config.d_model, config.d_ff)
        self.w2 = Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Transform `x` (T, D)."""
        hidden = self.w1(x)  # (T, d_ff)
        # In place where possible: these are the largest activations of a layer.
        activated = nn.functional.silu(hidden) if self.is_swish else hidden.relu_()
        return self.w2(activated)  # type: ignore[no-any-return]


class Embedding(nn.Module):
    """Token embedding times sqrt(d_model), plus position, then dropout (sections 3.4, 3.5, 5.4).

    Deviation: the paper's published code adds a learned vector to each source token, that of the
    language or task of the target (tensor2tensor at 3d9c62f2); the paper does not mention it.
    """

    _sinusoids: Tensor  # (max_positions or more, D)

    def __init__(self, config: ModelConfig, weight: nn.Parameter, dtype: torch.dtype) -> None:
        """Take the matrix, and compute the table of positions.

        Args:
            config: The kind of positions, d_model and dropout.
            weight: The embedding matrix (V, D).
            dtype: Data type of the output.
        """
        super().__init__()
        self.config = config
        self.weight = weight
        self.dtype = dtype
        self.dropout = nn.Dropout(config.dropout)
        if config.positions == "learned":  # row E of Table 3
            self.positions = new_matrix(config.max_positions, config.d_model)
        else:
            # A bin of `nmtkit.fast` has up to this number of positions. No row is computed later: a
            # CUDA graph could not copy it from the host.
            n_positions = max(MIN_SINUSOIDS, 1 << (config.max_positions - 1).bit_length())
            table = self._table(n_positions)
            self.register_buffer("_sinusoids", table, persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor, n_positions: int) -> Tensor:
        """Embed tokens: (T, D).

        Args:
            tokens: Token ids (T,).
            positions: Their positions in their sentences (T,).
            n_positions: A number that is larger than all positions.
        """
        # The sum is computed in float32 and then rounded to the precision of the layers.
        scaled = nn.functional.embedding(tokens, self.weight) * self.config.d_model**0.5
        embedded = scaled + self.position(positions, n_positions)
        return self.dropout(embedded.to(self.dtype))  # type: ignore[no-any-return]

    def position(self, positions: Tensor, n_positions: int) -> Tensor:
        """Return the vectors (T, D) that encode `positions` (T,), all below `n_positions`."""
        if self.config.positions == "learned":
            # Tokens beyond the longest training sentence share the last learned position.
            return self.positions[positions.clamp(max=self.config.max_positions - 1)]
        # Translations may be longer than all training sentences.
        if n_positions <= len(self._sinusoids):
            return self._sinusoids[positions]
        return self._table(n_positions).to(positions.device)[positions]

    def _table(self, n_positions: int) -> Tensor:
        is_fairseqs = self.config.positions == "fairseq"
        return (fairseq_sinusoids if is_fairseqs else sinusoids)(n_positions, self.config.d_model)


def new_matrix(n_rows: int, d_model: int) -> nn.Parameter:
    """Return a matrix (n_rows, D) of normally distributed values with variance 1 / D.

    Deviation: the paper does not specify the initialization. This one, and that of `Linear`, are
    those of its published code (tensor2tensor at 3d9c62f2).
    """
    return nn.Parameter(torch.empty(n_rows, d_model).normal_(std=d_model**-0.5))


def sinusoids(n_positions: int, d_model: int) -> Tensor:
    """Return (n_positions, D): sin(pos / 10000^(2i / D)) at 2i, cos at 2i + 1 (section 3.5)."""
    # float64, since angles of several thousand radians lose digits in float32
    positions = torch.arange(n_positions, dtype=torch.float64)[:, None]
    rates = 10_000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = positions * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


def fairseq_sinusoids(n_positions: int, d_model: int) -> Tensor:
    """Return (n_positions, D) as fairseq computes it, for models that it trained.

    Deviation: the sines precede the cosines, the rates are 10000^(-i / (D / 2 - 1)), as in the
    paper's published code, and the first position is 2, the one after fairseq's padding index.
    """
    positions = torch.arange(2, n_positions + 2, dtype=torch.float64)[:, None]
    half = d_model // 2
    rates = 10_000 ** (-torch.arange(half, dtype=torch.float64) / (half - 1))
    angles = positions * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


def final_norm(config: ModelConfig) -> nn.Module:
    """Return the module after the last layer: nothing in the paper, LayerNorm if norm = "pre"."""
    if config.norm == "post":
        return nn.Identity()
    return LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
