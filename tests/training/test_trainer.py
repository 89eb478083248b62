"""One step of training, by hand, and what is said where it does not fit into memory."""

import itertools
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from models import tiny
from test_loop import ALONE, CPU, FLOAT32, config_of, corpus, model_of
from torch import Tensor

from nmtkit.errors import UserError
from nmtkit.fast.packing import Capacity
from nmtkit.model.transformer import Transformer
from nmtkit.training import acceleration
from nmtkit.training.acceleration import Acceleration, Backward, batch_losses
from nmtkit.training.batches import Batch, Pairs, micro_batches, pack, updates
from nmtkit.training.distributed import Group
from nmtkit.training.loss import Losses
from nmtkit.training.schedule import learning_rate
from nmtkit.training.setup import enough_memory
from nmtkit.training.trainer import Trainer, Work, ahead


def test_three_steps_are_those_of_the_recipes_adam_by_hand() -> None:
    config = config_of(adam_beta1=0.7, adam_beta2=0.83, adam_epsilon=3e-2)
    ours, theirs = model_of(), model_of()
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in theirs.parameters()]
    trainer = Trainer(ours, corpus(), config, ALONE, FLOAT32, max_tokens=35)
    trainer.n_ahead = 1  # as on a GPU; `step` waits all the same
    for step, work in enumerate(trainer.coming(3), start=1):
        metrics = trainer.step(work)
        batch = pack(corpus(), work.update.pairs)
        loss = batch_losses(theirs, batch, 0.1).smoothed / len(batch.tgt_out)
        gradients = torch.autograd.grad(loss, list(theirs.parameters()))
        rate = learning_rate(step, d_model=16, warmup_steps=3)
        for weight, gradient, (m, v) in zip(theirs.parameters(), gradients, moments, strict=True):
            m.mul_(0.7).add_(0.3 * gradient)
            v.mul_(0.83).add_(0.17 * gradient**2)
            change = (m / (1 - 0.7**step)) / ((v / (1 - 0.83**step)).sqrt() + 3e-2)
            weight.data -= rate * change
        assert metrics.loss == pytest.approx(loss.item(), rel=1e-5)
        assert metrics.learning_rate == rate
    for mine, weight in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, weight, atol=1e-5, rtol=0.0)


def test_nothing_is_packed_in_another_thread_on_a_cpu() -> None:
    """Or else OpenMP has more threads than there are cores, and lets them sleep."""
    trainer = Trainer(model_of(), corpus(), config_of(), ALONE, FLOAT32, max_tokens=35)
    coming = trainer.coming(4)
    next(coming)
    assert not [each for each in threading.enumerate() if each.name.startswith("ahead")]
    assert [work.step for work in coming] == [2, 3, 4]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_share_an_update_whose_micro_batches_keep_their_numbers(size: int) -> None:
    """Dropout is seeded with the number, so that it does not depend on who computes what."""
    pairs, meta = corpus(), torch.device("meta")
    (update,) = itertools.islice(
        updates(pairs, seed=3, max_length=9, src_tokens=120, tgt_tokens=110), 1
    )
    of_ranks = [
        Trainer(
            *(model_of(), pairs, config_of(), Group(rank, size, meta), FLOAT32), max_tokens=20
        ).work_of(1, update)
        for rank in range(size)
    ]
    n_src, n_tgt = (
        int(lengths[update.pairs].sum()) for lengths in (pairs.src_lengths, pairs.tgt_lengths)
    )
    assert {(work.src_tokens, work.tgt_tokens) for work in of_ranks} == {(n_src, n_tgt)}
    found = {number: batch for work in of_ranks for number, batch in work.batches}
    expected = list(micro_batches(pairs, update.pairs, 20, None))
    assert sum(len(work.batches) for work in of_ranks) == len(found) == len(expected) > 3
    for number, chosen in enumerate(expected):
        assert found[number].tgt_in.shape == (pairs.tgt_lengths[chosen].sum(),)
        assert {each.device for each in found[number].tensors} == {meta}


@pytest.mark.parametrize("batches", ["random", "like-length"])
@pytest.mark.parametrize("size", [1, 4])
def test_all_rows_of_an_update_have_the_shape_of_its_octave(size: int, batches: str) -> None:
    lengths = np.random.default_rng(1).gamma(2.0, 15.0, 4_000).round().astype(int).clip(8, 256)
    offsets, ids = np.cumsum([0, *lengths]), np.full(lengths.sum(), 5, np.uint16)
    pairs, most = Pairs(ids, offsets, ids, offsets), 4_000
    tokens = {"src_tokens_per_update": most, "tgt_tokens_per_update": most}
    model = Transformer(tiny(max_positions=256), 9)
    seen: dict[int, Capacity] = {}
    for rank in range(size):
        group = Group(rank, size, torch.device("meta"))
        how = config_of(**tokens, batches=batches), group, Acceleration(static=True)
        trainer = Trainer(model, pairs, *how, max_tokens=most, shared=True)
        for update in itertools.islice(trainer.updates(), 30):
            (batch,) = [batch for _, batch in trainer.work_of(1, update).batches]  # one for each
            capacity, longest = batch.capacity, int(lengths[update.pairs].max())
            assert capacity is not None
            octave = max(16, 2 ** math.ceil(math.log2(longest)))
            assert seen.setdefault(octave, capacity) == capacity
            assert batch.tgt_in.shape == (capacity.n_tokens,)
            assert capacity.max_seqlen == max(128, octave)
            assert most <= size * (capacity.n_tokens - capacity.n_fillers) <= most + size * octave
    sentences = [seen[octave].most_sentences for octave in sorted(seen)]
    assert sentences == sorted(sentences, reverse=batches == "like-length")
    assert len(seen) >= (4 if batches == "like-length" else 1)


def test_micro_batches_of_an_update_have_different_dropout_masks() -> None:
    """The same sentences twice in one update: only dropout can make their losses differ."""
    found: list[Tensor] = []

    class Recording(Backward):
        def add(self, batch: Batch, scale: float) -> Tensor:
            found.append(super().add(batch, scale))
            return found[-1]

    for dropout in (0.0, 0.2):
        trainer = Trainer(model_of(dropout=dropout), corpus(), config_of(), ALONE, FLOAT32, 120)
        trainer.backward = Recording(trainer.model, 0.1, FLOAT32)
        update = next(trainer.updates())
        batch = pack(corpus(), update.pairs)
        trainer.step(Work(1, update, 240, 240, [(0, batch), (1, batch)]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[2], found[3])


@pytest.mark.parametrize(("limit", "expected"), [(999, 120), (40, 30), (17, 15)])
def test_micro_batches_are_halved_until_they_fit(
    monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    """And that is said once; no random number is taken."""
    said: list[str] = []
    narrow_memory(monkeypatch, limit)
    trainer = Trainer(model_of(dropout=0.2), corpus(), config_of(), ALONE, FLOAT32, max_tokens=120)
    before = torch.get_rng_state()
    trainer.rehearse(50, warn=said.append)
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.max_tokens == expected
    assert len(said) == (expected < 120)
    for work in trainer.coming(3):
        trainer.step(work)


def test_one_pair_that_does_not_fit_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow_memory(monkeypatch, 8)
    trainer = Trainer(model_of(), corpus(), config_of(), ALONE, FLOAT32, max_tokens=120)
    said = r"^cpu has too little memory .* use --max-tokens 60,"
    with pytest.raises(UserError, match=said), enough_memory(CPU, 120):
        trainer.rehearse(50)


def narrow_memory(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Let memory run out in a pass over more than `limit` tokens of a side."""
    genuine = acceleration.batch_losses

    def losses(model: Transformer, batch: Batch, *how: Any) -> Losses:
        if max(len(batch.src), len(batch.tgt_out)) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return genuine(model, batch, *how)

    monkeypatch.setattr(acceleration, "batch_losses", losses)


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
