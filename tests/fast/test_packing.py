"""Packed sequences and their padded views."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.fast.packing import PackedLayout

lengths_of_sentences = st.lists(st.integers(1, 7), min_size=1, max_size=6)


@given(lengths_of_sentences)
def test_layout_positions_and_mask(lengths: list[int]) -> None:
    layout = PackedLayout.from_lengths(lengths)
    assert layout.max_seqlen == max(lengths)
    assert layout.lengths.tolist() == lengths
    assert layout.cu_seqlens.tolist() == [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert layout.positions.tolist() == [i for length in lengths for i in range(length)]
    (rectangle,) = layout.padded_batches
    assert rectangle.mask.tolist() == [[i < n for i in range(max(lengths))] for n in lengths]


@given(lengths_of_sentences, st.data())
def test_pad_and_unpad_round_trip(lengths: list[int], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(lengths)), unique=True).map(sorted))
    layout = PackedLayout.from_lengths(lengths, tuple(cut for cut in cuts if cut < len(lengths)))
    merged = torch.arange(sum(lengths) * 10).view(-1, 10)
    row = torch.unflatten(merged[:, 4:], 1, (2, 3))  # a part of a merged projection
    sentences = list(torch.split(row, lengths))
    unpadded = torch.zeros_like(row).contiguous()
    for rectangle in layout.padded_batches:
        padded = rectangle.pad(row)
        rectangle.unpad(padded, unpadded)
        n, longest = rectangle.mask.shape
        assert padded.shape == (n * 2, longest, 3)
        assert rectangle.is_full == bool(rectangle.mask.all())
        for places in padded.view(n, 2, longest, 3).transpose(1, 2):
            tokens = sentences.pop(0)
            assert torch.equal(places[: len(tokens)], tokens)
            assert (places[len(tokens) :] == tokens[-1]).all()
    assert not sentences
    assert torch.equal(unpadded, row)


def test_pad_heads_of_other_width() -> None:
    merged = torch.arange(4 * 7).view(4, 7)
    row = torch.unflatten(merged[:, :6], 1, (2, 3))  # 7 is no multiple of 3
    (rectangle,) = PackedLayout.from_lengths([3, 1]).padded_batches
    assert torch.equal(rectangle.pad(row)[:2].transpose(0, 1), row[:3])
