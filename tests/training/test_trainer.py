"""One step of training, by hand, and what is said where it does not fit into memory."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_loop import ALONE, CPU, FLOAT32, config_of, corpus, model_of
from torch import Tensor

from nmtkit.errors import UserError
from nmtkit.model.transformer import Transformer
from nmtkit.training import acceleration
from nmtkit.training.acceleration import Backward, batch_losses
from nmtkit.training.batches import Batch, micro_batches, pack, updates
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


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_short_memory_is_told_in_one_sentence(error: Exception) -> None:
    with (
        pytest.raises(UserError, match=r"^cpu has too little memory .* use --max-tokens 37,"),
        enough_memory(CPU, 75),
    ):
        raise error


@pytest.mark.parametrize(("limit", "expected"), [(999, 120), (40, 30), (17, 15)])
def test_micro_batches_are_halved_until_they_fit(
    monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    """And that is said once."""
    said: list[str] = []
    narrow_memory(monkeypatch, limit)
    trainer = Trainer(model_of(), corpus(), config_of(), ALONE, FLOAT32, max_tokens=120)
    trainer.rehearse(50, say=said.append)
    assert trainer.max_tokens == expected
    assert len(said) == (expected < 120)
    for work in trainer.coming(3):
        trainer.step(work)


def test_one_pair_that_does_not_fit_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow_memory(monkeypatch, 8)
    trainer = Trainer(model_of(), corpus(), config_of(), ALONE, FLOAT32, max_tokens=120)
    with pytest.raises(UserError, match=r"^cpu has too little memory"), enough_memory(CPU, 120):
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
