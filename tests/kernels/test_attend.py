"""Attention to caches, by kernels and by torch, against equation 1 in float64."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from nmtkit.kernels.attention import KEYS, Mask, append, attend, move, select

# What a bfloat16 of magnitude 1 to 2 is rounded by, and torch rounds weights and products too.
DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 0.02)]
)
HUGE = 1e30

pytestmark = pytest.mark.usefixtures("kernels_or_torch")


def projected(
    n_sentences: int, n_beams: int, heads: int, d_k: int, d_v: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of the newest tokens, as one product returns them."""
    widths = [heads * d_k, heads * d_k, heads * d_v]
    rows = torch.randn(n_sentences, n_beams, sum(widths)).to(dtype)
    q, k, v = (torch.unflatten(each, 2, (heads, -1)) for each in torch.split(rows, widths, 2))
    return q, k, v


@DTYPES
@pytest.mark.parametrize("n_beams", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize(("d_k", "d_v", "n_keys"), [(5, 3, KEYS), (32, 16, 2 * KEYS), (7, 37, 48)])
@pytest.mark.parametrize("is_shared", [False, True])
def test_attended_values_are_those_of_equation_1(
    dtype: torch.dtype,
    tolerance: float,
    n_beams: int,
    d_k: int,
    d_v: int,
    n_keys: int,
    is_shared: bool,
) -> None:
    torch.manual_seed(n_beams + d_k)
    n_sentences, heads, room = 6, 2, n_keys + KEYS
    q, _, _ = projected(n_sentences, n_beams, heads, d_k, d_v, dtype)
    keys = torch.randn(n_sentences, heads, d_k, room).to(dtype)
    values = torch.randn(n_sentences, heads, room, d_v).to(dtype)
    seen = torch.rand(n_sentences, 1 if is_shared else n_beams, room) < 0.4
    seen[:, :, 0] = True
    # In a packed row or a longer table, what a kernel reads has neighbours.
    mask = Mask(seen[:, :, :n_keys])
    attended = attend(q, keys, values, mask)
    assert attended.dtype == dtype
    expected = scaled_dot_product_attention(
        q.transpose(1, 2).double(),
        keys[..., :n_keys].transpose(2, 3).double(),
        values[:, :, :n_keys].double(),
        attn_mask=seen[:, None, :, :n_keys],
    )
    expected = expected.transpose(1, 2).flatten(2)
    torch.testing.assert_close(attended.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hidden_entries_have_no_weight_at_all(dtype: torch.dtype) -> None:
    q, _, _ = projected(3, 4, 2, 8, 5, dtype)
    keys = torch.randn(3, 2, 8, KEYS).to(dtype)
    values = torch.randn(3, 2, KEYS, 5).to(dtype)
    seen = torch.zeros(3, 4, KEYS, dtype=torch.bool)
    seen[:, :, :6] = True
    expected = attend(q, keys, values, Mask(seen))
    keys[..., 6:], values[:, :, 6:] = -HUGE, HUGE
    torch.testing.assert_close(attend(q, keys, values, Mask(seen)), expected, rtol=0, atol=0)
    keys[..., 6:] = HUGE
    torch.testing.assert_close(attend(q, keys, values, Mask(seen)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_sentences", [1, 3])
@pytest.mark.parametrize("n_beams", [1, 4])
def test_newest_tokens_become_entries(dtype: torch.dtype, n_sentences: int, n_beams: int) -> None:
    _, k, v = projected(n_sentences, n_beams, 2, 5, 7, dtype)
    keys = torch.randn(n_sentences, 2, 5, KEYS).to(dtype)
    values = torch.randn(n_sentences, 2, KEYS, 7).to(dtype)
    others = keys.clone(), values.clone()
    append(k, v, keys, values, 3)
    for beam in range(n_beams):
        assert torch.equal(keys[..., 3 + beam], k[:, beam])
        assert torch.equal(values[:, :, 3 + beam], v[:, beam])
    stop = 3 + n_beams
    assert torch.equal(keys[..., :3], others[0][..., :3])
    assert torch.equal(keys[..., stop:], others[0][..., stop:])
    assert torch.equal(values[:, :, :3], others[1][:, :, :3])
    assert torch.equal(values[:, :, stop:], others[1][:, :, stop:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_entries_move_to_the_front_of_their_sentence(dtype: torch.dtype) -> None:
    keys = torch.randn(4, 2, 5, KEYS).to(dtype)
    values = torch.randn(4, 2, KEYS, 7).to(dtype)
    before = keys.clone(), values.clone()
    entries = torch.tensor([[0, 1, 2, 3], [0, 2, 7, 11], [4, 5, 0, 0], [1, 0, 0, 0]])
    counts = torch.tensor([4, 4, 2, 1])
    select(keys, values, entries, counts)
    for sentence, (of_one, count) in enumerate(zip(entries, counts, strict=True)):
        kept = of_one[:count]
        assert torch.equal(keys[sentence, ..., :count], before[0][sentence, ..., kept])
        assert torch.equal(values[sentence, :, :count], before[1][sentence, :, kept])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sentences_move_to_other_places(dtype: torch.dtype) -> None:
    cached = torch.randn(6, 2, 3, 5).to(dtype)
    before = cached.clone()
    move(cached[:5], torch.tensor([1, 2]), torch.tensor([4, 3]))
    assert torch.equal(cached, before[[0, 4, 3, 3, 4, 5]])
