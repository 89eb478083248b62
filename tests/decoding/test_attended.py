"""The weights of attention, against torch's own layers and the definition of a neighbourhood."""

from copy import deepcopy

import torch
from bundles import plain_model
from models import tiny
from torch import Tensor, nn

from nmtkit.decoding.forced import attended
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer
from nmtkit.symbols import BOS_ID, EOS_ID

SRC, TGT_IN = [9, 8, 7, 11, 30, EOS_ID], [BOS_ID, 5, 6, 40]
CONFIG = tiny(d_model=15, d_k=5, d_v=5, d_ff=21, n_heads=3, max_positions=8, positions="learned")


def torchs(weight: Tensor, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """The weights (H, Lq, Lk) of torch's own layer with our merged projections."""
    layer = nn.MultiheadAttention(15, 3, bias=False, batch_first=True)
    assert layer.in_proj_weight is not None
    layer.in_proj_weight.data.copy_(weight)
    hidden = None if mask is None else ~mask
    _, weights = layer(
        queries[None], keys[None], keys[None], attn_mask=hidden, average_attn_weights=False
    )
    return weights[0]  # type: ignore[no-any-return]


@torch.no_grad()
def expected(model: Transformer) -> dict[str, list[Tensor]]:
    """The weights, layer by layer."""
    found: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
    src, tgt = PackedLayout.of_lengths([len(SRC)]), PackedLayout.of_lengths([len(TGT_IN)])
    x = model.src_embedding(torch.tensor(SRC), src.positions, len(SRC))
    for layer in model.encoder:
        found["encoder"].append(torchs(layer.self_attention.qkv.weight, x, x, None))
        x = layer(x, None)
    y = model.tgt_embedding(torch.tensor(TGT_IN), tgt.positions, len(TGT_IN))
    causal = torch.ones(len(TGT_IN), len(TGT_IN), dtype=torch.bool).tril()
    for decoder in model.decoder:
        found["decoder"].append(torchs(decoder.self_attention.qkv.weight, y, y, causal))
        attend = decoder.residuals[0]
        z = attend(y, lambda each, at=decoder: at.self_attention(each, causal))
        cross = decoder.cross_attention
        merged = torch.cat([cross.q.weight, cross.kv.weight])
        found["cross"].append(torchs(merged, z, x, None))
        y = decoder(y, causal, cross.keys_values(x), None)
    return found


def test_weights_are_those_of_torchs_layers_and_sum_to_one() -> None:
    model = plain_model(CONFIG)
    found = attended(accelerate(deepcopy(model)), SRC, TGT_IN[1:])
    for kind, layers in expected(model).items():
        actual = getattr(found, kind)
        torch.testing.assert_close(actual, torch.stack(layers), atol=1e-6, rtol=0.0)
        torch.testing.assert_close(actual.sum(-1), torch.ones(actual.shape[:-1]))


def test_a_neighbourhood_is_seen_and_nothing_else() -> None:
    found = attended(
        accelerate(plain_model(CONFIG.model_copy(update={"neighbourhood": 3}))), SRC, TGT_IN[1:]
    )
    for weights, near in ((found.encoder, (-1, 0, 1)), (found.decoder, (-2, -1, 0))):
        n = weights.shape[-1]
        seen = torch.tensor([[j - i in near for j in range(n)] for i in range(n)])
        assert torch.equal(weights > 0, seen.expand_as(weights))
    assert (found.cross > 0).all()
