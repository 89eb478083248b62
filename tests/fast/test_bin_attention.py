"""Dense bins: kernels of attention, and positions."""

import pytest
import torch
from models import tiny
from torch.nn.attention import sdpa_kernel

from nmtkit.fast.bins import ATTENTION_KERNELS
from nmtkit.model.transformer import Transformer
from nmtkit.training.bins import bin_lengths

# Numbers of `sdp::SDPBackend`: math, flash, memory-efficient, cuDNN.
MATH, FLASH, EFFICIENT, CUDNN = range(4)


def test_only_these_kernels_are_chosen() -> None:
    q, k, v = torch.randn(3, 2, 4, 16, 8)
    mask = torch.zeros(2, 1, 16, 16)
    assert torch._fused_sdp_choice(q, k, v, mask, 0.0, False) == FLASH  # of a CPU
    with sdpa_kernel(ATTENTION_KERNELS):
        assert torch._fused_sdp_choice(q, k, v, mask, 0.0, False) == MATH
        assert torch.backends.cuda.mem_efficient_sdp_enabled()  # type: ignore[no-untyped-call]
        assert not torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
        assert not torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("max_positions", [5, 100, 200, 256, 300])
def test_bin_has_no_position_without_row(
    max_positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each micro-batch would compute them on the host."""
    embedding = Transformer(tiny(max_positions=max_positions), 23).src_embedding
    length = bin_lengths(max_positions)[-1]
    positions = torch.arange(length)
    expected = embedding._table(length)
    monkeypatch.setattr(embedding, "_table", None)
    assert torch.equal(embedding.position(positions, length), expected)
