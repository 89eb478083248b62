"""What each process computes of an update, and when it is packed."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from test_loop import corpus

from nmtkit.training.batches import micro_batches, updates
from nmtkit.training.distributed import Group
from nmtkit.training.work import ahead, work_of

MAX_TOKENS = 20


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_share_an_update_whose_micro_batches_keep_their_numbers(size: int) -> None:
    """Dropout is seeded with the number, so that it does not depend on who computes what."""
    pairs, meta = corpus(), torch.device("meta")
    (update,) = itertools.islice(
        updates(pairs, seed=3, max_length=9, src_tokens=120, tgt_tokens=110), 1
    )
    of_ranks = [
        work_of(1, update, pairs, Group(rank, size, meta), max_tokens=MAX_TOKENS, capacity=None)
        for rank in range(size)
    ]
    n_src, n_tgt = (
        int(lengths[update.pairs].sum()) for lengths in (pairs.src_lengths, pairs.tgt_lengths)
    )
    assert {(work.src_tokens, work.tgt_tokens) for work in of_ranks} == {(n_src, n_tgt)}
    found = {number: batch for work in of_ranks for number, batch in work.batches}
    expected = list(micro_batches(pairs, update.pairs, MAX_TOKENS, None))
    assert sum(len(work.batches) for work in of_ranks) == len(found) == len(expected) > 3
    for number, chosen in enumerate(expected):
        assert found[number].tgt_in.shape == (pairs.tgt_lengths[chosen].sum(),)
        assert {each.device for each in found[number].tensors} == {meta}


def test_what_is_made_ahead_comes_in_order_and_not_too_early() -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for i in range(9):
            asked.append(i)
            yield i

    made = ahead(items(), lambda i: 10 * i, n_ahead=2)
    assert next(made) == 0
    assert asked == [0, 1, 2]
    assert list(made) == [10, 20, 30, 40, 50, 60, 70, 80]


def test_an_error_ahead_is_raised_where_its_turn_comes() -> None:
    made = ahead([4, 2, 0, 1], lambda i: 8 // i)
    assert [next(made), next(made)] == [2, 4]
    with pytest.raises(ZeroDivisionError):
        next(made)
