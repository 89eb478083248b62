"""Packed rows and their padded views."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmtkit.model.packing import Layout, pad, unpad

lengths_of_sentences = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def row_of(lengths: list[int], width: int = 3) -> Tensor:
    return torch.arange(sum(lengths) * width, dtype=torch.float64).view(sum(lengths), width) + 1


@given(lengths_of_sentences)
def test_layout_tells_where_each_token_stands(lengths: list[int]) -> None:
    layout = Layout.of_lengths(lengths)
    assert layout.max_seqlen == max(lengths)
    assert layout.lengths.tolist() == lengths
    assert layout.cu_seqlens.tolist() == [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert layout.positions.tolist() == [i for length in lengths for i in range(length)]
    assert layout.mask.tolist() == [[i < length for i in range(max(lengths))] for length in lengths]


@given(lengths_of_sentences)
def test_padded_view_holds_each_sentence_and_repeats_its_last_token(lengths: list[int]) -> None:
    row = row_of(lengths)
    padded = pad(row, Layout.of_lengths(lengths))
    assert padded.shape == (len(lengths), max(lengths), 3)
    for sentence, tokens in zip(padded, row.split(lengths), strict=True):  # type: ignore[no-untyped-call]
        assert torch.equal(sentence[: len(tokens)], tokens)
        assert torch.equal(sentence[len(tokens) :], tokens[-1].expand_as(sentence[len(tokens) :]))


@given(lengths_of_sentences)
def test_unpad_undoes_pad(lengths: list[int]) -> None:
    row, layout = row_of(lengths), Layout.of_lengths(lengths)
    assert torch.equal(unpad(pad(row, layout), layout), row)


@given(lengths_of_sentences)
def test_gradient_comes_back_through_pad_and_unpad_unchanged(lengths: list[int]) -> None:
    row, layout = row_of(lengths).requires_grad_(), Layout.of_lengths(lengths)
    weights = torch.randn(row.shape, dtype=torch.float64)
    (unpad(pad(row, layout), layout) * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert row.grad is not None
    assert torch.equal(row.grad, weights)


@given(lengths_of_sentences)
def test_unpad_gives_no_gradient_to_places_without_a_token(lengths: list[int]) -> None:
    layout = Layout.of_lengths(lengths)
    padded = torch.ones(*layout.mask.shape, 2, requires_grad=True)
    unpad(padded, layout).sum().backward()  # type: ignore[no-untyped-call]
    assert padded.grad is not None
    assert torch.equal(padded.grad, layout.mask[:, :, None].expand(-1, -1, 2).float())


def test_gradient_of_masked_attention_is_that_of_finite_differences() -> None:
    layout = Layout.of_lengths([3, 1, 5, 2])

    def attend(row: Tensor) -> Tensor:
        x = pad(row, layout)
        scores = (x @ x.transpose(1, 2)).masked_fill(~layout.mask[:, None], -torch.inf)
        return unpad(scores.softmax(-1) @ x, layout)

    row = torch.randn(11, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(attend, (row,))


def test_layout_moves_to_another_device() -> None:
    layout = Layout.of_lengths(torch.tensor([2, 4])).to(torch.device("meta"))
    assert layout.cu_seqlens.device.type == "meta"
    assert layout.max_seqlen == 4
