"""The model, compared with torch's Transformer, plain loops and the paper's tables."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import BASE, random_transformer, tiny
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nmtkit.config.model import ModelConfig
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.attention import attention, attention_window, visible
from nmtkit.model.transformer import (
    CrossAttention,
    DecoderLayer,
    SelfAttention,
    Transformer,
    fairseq_sinusoids,
    sinusoids,
)

V = 23
SRC_LENGTHS = [5, 1, 8, 3, 2]
TGT_LENGTHS = [4, 6, 1, 7, 2]


def model_of(config: ModelConfig) -> Transformer:
    """A model with random biases and norms, which are zeros and ones in a new model."""
    return random_transformer(config, V, seed=5, spread=0.1)


def sentences(lengths: list[int], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(V, (length,), generator=generator) for length in lengths]


def run(model: Transformer, src: list[Tensor], tgt: list[Tensor]) -> list[Tensor]:
    """The decoder's output for every sentence; the sentences are packed into one batch."""
    src_layout = PackedLayout.from_lengths([len(sentence) for sentence in src])
    tgt_layout = PackedLayout.from_lengths([len(sentence) for sentence in tgt])
    output = model(torch.cat(src), src_layout, torch.cat(tgt), tgt_layout)
    return list(torch.split(output, [len(sentence) for sentence in tgt]))


NAMES = [  # ours, and torch's
    (r"tgt_embedding\.weight", "weight"),
    (r"self_attention\.qkv\.", "self_attn.in_proj_"),
    (r"self_attention\.out", "self_attn.out_proj"),
    (r"cross_attention\.(q|kv)\.", "multihead_attn.in_proj_"),
    (r"cross_attention\.out", "multihead_attn.out_proj"),
    (r"feed_forward\.w", "linear"),
    *((rf"residuals\.{i}\.norm", f"norm{i + 1}") for i in range(3)),
    ("coder_norm", "coder.norm"),
]


class Reference(nn.Module):
    """torch.nn's Transformer over padded batches, with the weights of `model`."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        config = model.config
        shape: dict[str, Any] = {
            "d_model": config.d_model,
            "nhead": config.n_heads,
            "dim_feedforward": config.d_ff,
            "dropout": 0.0,
            "layer_norm_eps": config.layer_norm_epsilon,
            "activation": nn.functional.silu if config.activation == "swish" else "relu",
            "batch_first": True,
            "norm_first": config.norm == "pre",
        }
        norms: list[nn.LayerNorm | None] = [None, None]
        if config.norm == "pre":
            norms = [nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon) for _ in norms]
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**shape), config.n_layers, norms[0], False
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**shape), config.decoder_layers, norms[1]
        )
        self.weight = nn.Parameter(torch.empty_like(model.tgt_embedding.weight))
        self.pairs = self.counterparts(model)
        with torch.no_grad():
            for name, bias in self.named_parameters():
                if name.endswith(("in_proj_bias", "out_proj.bias")):
                    bias.zero_()
            for theirs, ours in self.pairs:
                theirs.copy_(torch.cat(ours))

    def counterparts(self, model: Transformer) -> list[tuple[Tensor, list[Tensor]]]:
        """Torch's parameters, and the parameters of `model` that they are stacked from."""
        pairs: dict[str, list[Tensor]] = {}
        for name, parameter in model.named_parameters():
            theirs = re.sub(r"coder\.(\d)", r"coder.layers.\1", name)
            for pattern, torch_name in NAMES:
                theirs = re.sub(pattern, torch_name, theirs)
            pairs.setdefault(theirs, []).append(parameter)
        parameters = dict(self.named_parameters())
        return [(parameters[name], ours) for name, ours in pairs.items()]

    def embed(self, padded: Tensor) -> Tensor:
        d_model = self.weight.shape[1]
        table = torch.tensor(plain_sinusoids(padded.shape[1], d_model))
        return self.weight[padded] * math.sqrt(d_model) + table

    def forward(self, src: list[Tensor], tgt: list[Tensor]) -> list[Tensor]:
        src_padded = pad_sequence(src, True)
        tgt_padded = pad_sequence(tgt, True)
        src_lengths = torch.tensor([[len(sentence)] for sentence in src])
        tgt_lengths = torch.tensor([[len(sentence)] for sentence in tgt])
        src_is_pad = torch.arange(src_padded.shape[1]) >= src_lengths
        tgt_is_pad = torch.arange(tgt_padded.shape[1]) >= tgt_lengths
        future = torch.ones(tgt_padded.shape[1], tgt_padded.shape[1], dtype=torch.bool).triu(1)
        memory = self.encoder(self.embed(src_padded), src_key_padding_mask=src_is_pad)
        output = self.decoder(
            self.embed(tgt_padded),
            memory,
            tgt_mask=future,
            tgt_key_padding_mask=tgt_is_pad,
            memory_key_padding_mask=src_is_pad,
        )
        return [row[: len(sentence)] for row, sentence in zip(output, tgt, strict=True)]


def plain_sinusoids(n_positions: int, d_model: int) -> list[list[float]]:
    """The table of section 3.5, number by number."""
    table = []
    for position in range(n_positions):
        row = []
        for j in range(d_model):
            angle = position / 10_000 ** ((j - j % 2) / d_model)
            row.append(math.cos(angle) if j % 2 else math.sin(angle))
        table.append(row)
    return table


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre"},
        {"attention_bias": True},
        {"n_decoder_layers": 1},
        {"n_decoder_layers": 3, "norm": "pre"},
    ],
    ids=str,
)
def test_model_equals_torch(changes: dict[str, Any]) -> None:
    model = model_of(tiny(**changes, layer_norm_epsilon=0.01))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # with zeros, a missing addition would not be noticed
            nn.init.normal_(parameter)
    reference = Reference(model)
    assert {id(part) for _, ours in reference.pairs for part in ours} == {
        id(parameter) for parameter in model.parameters()
    }
    src = sentences(SRC_LENGTHS, 1)
    tgt = sentences(TGT_LENGTHS, 2)
    ours = torch.cat(run(model, src, tgt))
    theirs = torch.cat(reference(src, tgt))
    assert (ours - theirs).abs().max() < 1e-5
    weights = torch.randn(len(ours), V) / V
    ((ours @ model.output_matrix.t()) * weights).sum().backward()  # type: ignore[no-untyped-call]
    ((theirs @ reference.weight.t()) * weights).sum().backward()  # type: ignore[no-untyped-call]
    for their_parameter, our_parameters in reference.pairs:
        grads = [parameter.grad for parameter in our_parameters]
        our_grad = torch.cat([grad for grad in grads if grad is not None])
        assert their_parameter.grad is not None
        assert their_parameter.grad.abs().max() > 1e-4
        assert (our_grad - their_parameter.grad).abs().max() < 1e-5


def test_swish_equals_torch() -> None:
    model = model_of(tiny(activation="swish", layer_norm_epsilon=0.01))
    reference = Reference(model)
    src = sentences(SRC_LENGTHS, 1)
    tgt = sentences(TGT_LENGTHS, 2)
    ours = torch.cat(run(model, src, tgt))
    theirs = torch.cat(reference(src, tgt))
    assert (ours - theirs).abs().max() < 1e-5


def test_output_bias_is_added_to_logits() -> None:
    model = model_of(tiny(output_bias=True))
    assert model.output_bias is not None
    x = torch.randn(7, model.config.d_model)
    expected = x @ model.output_matrix.t() + model.output_bias
    torch.testing.assert_close(model.logits(x), expected)


def multi_head(x: Tensor, y: Tensor, matrices: list[Tensor], mask: Tensor | None) -> Tensor:
    """Section 3.2.2 for queries from `x` and keys and values from `y`, head by head."""
    *projections, w_out = matrices
    sides = zip((x, y, y), projections, strict=True)
    q, k, v = (torch.unflatten(side @ w.t(), 1, (3, -1)) for side, w in sides)
    heads = [attention(q[:, h], k[:, h], v[:, h], mask) for h in range(3)]
    return torch.cat(heads, 1) @ w_out.t()


# In rows B of Table 3, d_k and d_v differ, and the heads need not add up to d_model.
@pytest.mark.parametrize("kind", ["causal", "whole", "cross"])
def test_heads_with_other_d_v(kind: str) -> None:
    torch.manual_seed(3)
    config = tiny(d_model=6, d_k=2, d_v=5)
    n_src = [3, 1, 4]
    n_tgt = [2, 5, 1]
    x = [torch.randn(length, 6) for length in n_tgt]
    tgt_layout = src_layout = PackedLayout.from_lengths(n_tgt)
    mask = visible(tgt_layout, tgt_layout, attention_window(causal=kind == "causal"))
    if kind == "cross":
        cross = CrossAttention(config)
        memory = [torch.randn(length, 6) for length in n_src]
        src_layout = PackedLayout.from_lengths(n_src)
        mask = visible(tgt_layout, src_layout, attention_window(causal=False))
        matrices = [cross.q.weight, *torch.split(cross.kv.weight, [6, 15]), cross.out.weight]
        output = cross(torch.cat(x), *cross.keys_values(torch.cat(memory)), mask)
    else:
        own = SelfAttention(config)
        memory = x
        matrices = [*torch.split(own.qkv.weight, [6, 6, 15]), own.out.weight]
        output = own(torch.cat(x), mask)
    expected = []
    for queries, keys in zip(x, memory, strict=True):
        past = torch.ones(len(queries), len(keys)).tril() > 0
        head_mask = past if kind == "causal" else None
        expected.append(multi_head(queries, keys, matrices, head_mask))
    torch.testing.assert_close(output, torch.cat(expected))


def test_sinusoids_by_hand() -> None:
    expected = torch.tensor(plain_sinusoids(300, 14), dtype=torch.float64)
    torch.testing.assert_close(sinusoids(300, 14).double(), expected, rtol=0, atol=1e-7)
    angles = torch.arange(2, 302.0).double()[:, None] * 10_000 ** (-torch.arange(7.0).double() / 6)
    expected = torch.cat([angles.sin(), angles.cos()], 1)
    torch.testing.assert_close(fairseq_sinusoids(300, 14).double(), expected, rtol=0, atol=1e-7)


def embed(model: Transformer, tokens: Tensor) -> Tensor:
    layout = PackedLayout.from_lengths([len(tokens)])
    embedded: Tensor = model.src_embedding(tokens, layout.positions, layout.max_seqlen)
    return embedded


@pytest.mark.parametrize(
    ("positions", "table"), [("sinusoid", sinusoids), ("fairseq", fairseq_sinusoids)]
)
def test_sinusoids_of_long_sentence(positions: str, table: Callable[[int, int], Tensor]) -> None:
    model = model_of(tiny(positions=positions, max_positions=5))
    tokens = torch.arange(13)
    expected = model.src_embedding.weight[tokens] * math.sqrt(12) + table(13, 12)
    for length in (13, 4, 7):  # a longer sentence, and shorter ones after it
        torch.testing.assert_close(embed(model, tokens[:length]), expected[:length])


def test_learned_positions_are_trained() -> None:
    model = model_of(tiny(positions="learned", max_positions=4))
    positions = model.src_embedding.positions
    assert any(parameter is positions for parameter in model.parameters())
    tokens = torch.tensor([7, 7, 9])
    output = embed(model, tokens)
    torch.testing.assert_close(
        output, model.src_embedding.weight[tokens] * math.sqrt(12) + positions[:3]
    )
    output.sum().backward()  # type: ignore[no-untyped-call]
    assert positions.grad is not None
    assert positions.grad.tolist() == [[1.0] * 12] * 3 + [[0.0] * 12]


def test_learned_positions_of_long_sentence() -> None:
    output = embed(model_of(tiny(positions="learned", max_positions=4)), torch.full((6,), 5))
    assert torch.equal(output[4:], output[[3, 3]])
    assert not torch.equal(output[3], output[2])


def test_dropout_places() -> None:
    model = model_of(tiny(dropout=0.25))
    dropouts = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    seen: list[tuple[int, ...]] = []
    for dropout in dropouts:
        dropout.register_forward_hook(lambda _module, _args, output: seen.append(output.shape))
    run(model, sentences([5, 2], 1), sentences([3, 1], 2))
    n_layers = 2
    src_shape = (7, 12)
    tgt_shape = (4, 12)
    assert seen == [src_shape] * (1 + 2 * n_layers) + [tgt_shape] * (1 + 3 * n_layers)
    assert {dropout.p for dropout in dropouts} == {0.25}


def test_initial_weights_have_xavier_limits() -> None:
    """Xavier's limits for a merged matrix as a whole; its parts alone would have 0.0765."""
    torch.manual_seed(1)
    layer = DecoderLayer(tiny(attention_bias=True, **BASE))
    limits = {
        layer.self_attention.qkv: 0.0541,
        layer.cross_attention.kv: 0.0625,
        layer.cross_attention.q: 0.0765,
        layer.self_attention.out: 0.0765,
        layer.feed_forward.w1: 0.0484,
        layer.feed_forward.w2: 0.0484,
    }
    for linear, limit in limits.items():
        assert linear.weight.min().item() == pytest.approx(-limit, abs=1e-4)
        assert linear.weight.max().item() == pytest.approx(limit, abs=1e-4)
        uniform_std = limit / math.sqrt(3)
        assert linear.weight.std().item() == pytest.approx(uniform_std, rel=0.01)
        assert not linear.bias.any()


def test_scaled_embeddings_unit_variance() -> None:
    torch.manual_seed(1)
    model = Transformer(tiny(d_model=256, n_layers=1, tie_embeddings=False), n_rows=500)
    for matrix in (model.src_embedding.weight, model.tgt_embedding.weight, model.output_matrix):
        assert matrix.std().item() == pytest.approx(256**-0.5, rel=0.02)
