"""One step of training, computed by hand, and its division among processes."""

import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from models import tiny
from torch import Tensor
from trainers import config_of, corpus, model_of, trainer_of

from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Level
from nmtkit.training.batches import Ints, Pairs, updates
from nmtkit.training.distributed import Group
from nmtkit.training.gradients import Gradients, batch_losses
from nmtkit.training.micro_batches import Batch, micro_batches, pack
from nmtkit.training.step import PreparedUpdate, learning_rate, prefetch


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_steps_equal_adam_by_hand(weight_decay: float) -> None:
    config = config_of(
        adam_beta1=0.7, adam_beta2=0.83, adam_epsilon=3e-2, weight_decay=weight_decay
    )
    ours, theirs = model_of(), model_of()
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in theirs.parameters()]
    trainer = trainer_of(ours, corpus(), config, max_tokens=35)
    for step, prepared in enumerate(trainer.prepared_updates(3), start=1):
        result = trainer.train_step(prepared).wait()
        batch = pack(corpus(), prepared.update.pairs)
        loss = batch_losses(theirs, batch, 0.1).smoothed / len(batch.tgt_out)
        gradients = torch.autograd.grad(loss, list(theirs.parameters()))
        rate = learning_rate(step, d_model=16, warmup_steps=3)
        for weight, gradient, (m, v) in zip(theirs.parameters(), gradients, moments, strict=True):
            m.mul_(0.7).add_(0.3 * gradient)
            v.mul_(0.83).add_(0.17 * gradient**2)
            change = (m / (1 - 0.7**step)) / ((v / (1 - 0.83**step)).sqrt() + 3e-2)
            weight.data -= rate * (change + weight_decay * weight.data)
        assert result.metrics.loss == pytest.approx(loss.item(), rel=1e-5)
        assert result.metrics.learning_rate == rate
    for mine, weight in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, weight, atol=1e-5, rtol=0.0)


def test_cpu_packs_in_main_thread() -> None:
    """With another thread, OpenMP would have more threads than cores and let some sleep."""
    trainer = trainer_of(model_of(), corpus(), config_of(), max_tokens=35)
    prepared_updates = trainer.prepared_updates(4)
    next(prepared_updates)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]
    assert [prepared.step for prepared in prepared_updates] == [2, 3, 4]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_share_an_update(size: int) -> None:
    """Dropout is seeded with the number, so that it does not depend on the number of processes."""
    pairs = corpus()
    meta = torch.device("meta")
    (update,) = itertools.islice(
        updates(pairs, seed=3, max_length=9, src_tokens=120, tgt_tokens=110), 1
    )
    n_src = int(pairs.src_lengths[update.pairs].sum())
    n_tgt = int(pairs.tgt_lengths[update.pairs].sum())
    found: dict[int, Batch | Tensor] = {}
    n_micro_batches = 0
    for rank in range(size):
        group = Group(rank, size, meta)
        trainer = trainer_of(model_of(), pairs, config_of(), group, max_tokens=20)
        prepared = trainer.prepare(update, 1)
        assert (prepared.src_tokens, prepared.tgt_tokens) == (n_src, n_tgt)
        n_micro_batches += len(prepared.micro_batches)
        found.update(prepared.micro_batches)
    expected = list(micro_batches(pairs, update.pairs, 20))
    assert n_micro_batches == len(found) == len(expected) > 3
    for number, chosen in enumerate(expected):
        batch = found[number]
        assert isinstance(batch, Batch)
        assert batch.tgt_in.shape == (pairs.tgt_lengths[chosen].sum(),)
        assert batch.src.device == batch.tgt_layout.positions.device == meta


@pytest.mark.parametrize("batches", ["random", "like-length"])
@pytest.mark.parametrize("size", [1, 4])
def test_bins_of_all_updates_have_few_shapes(size: int, batches: str) -> None:
    """Few updates need a second micro-batch."""
    lengths = np.random.default_rng(1).gamma(2.0, 15.0, 4_000).round().astype(int).clip(8, 256)
    offsets = np.cumsum([0, *lengths])
    ids = np.full(lengths.sum(), 5, np.uint16)
    pairs = Pairs(ids, offsets, ids, offsets)
    tokens = {"src_tokens_per_update": 4_000, "tgt_tokens_per_update": 4_000}
    model = Transformer(tiny(max_positions=256), 9)
    found: dict[int, list[int]] = {}
    shapes = set()
    for rank in range(size):
        trainer = trainer_of(
            model,
            pairs,
            config_of(**tokens, batches=batches),
            Group(rank, size, torch.device("meta")),
            max_tokens=9_999,  # more than an update needs
            multiple_of=size,
            use_bins=True,
        )
        for number, update in enumerate(itertools.islice(trainer.updates(), 60)):
            prepared = trainer.prepare(update, 1)
            for index, bins in prepared.micro_batches:
                assert isinstance(bins, Tensor)
                shapes.add(tuple(bins.shape))
                found.setdefault(number, []).append(index)
    assert shapes <= {(7, shape.n_bins, shape.length) for shape in trainer.bin_shapes}
    assert len(trainer.bin_shapes) <= 6
    n_micro_batches = [len(indices) for indices in found.values()]
    for indices in found.values():
        assert sorted(indices) == list(range(len(indices)))
    assert sum(n > size for n in n_micro_batches) <= 3


def test_step_with_nonfinite_loss_is_skipped() -> None:
    """Although its gradient is finite."""

    class Overflowing(Gradients):
        def add(self, batch: Batch | Tensor, scale: Tensor) -> Tensor:
            return super().add(batch, scale) * torch.inf

    model = model_of()
    before = [parameter.clone() for parameter in model.parameters()]
    trainer = trainer_of(model, corpus(), config_of())
    trainer.gradients = Overflowing(model, 0.1, Level.EAGER)
    (prepared,) = trainer.prepared_updates(1)
    metrics = trainer.train_step(prepared).wait().metrics
    assert np.isfinite(metrics.gradient_norm)
    assert metrics.skipped
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


def test_first_epoch_is_ordered_once() -> None:
    """For the shapes of bins and for training."""
    epochs: list[int] = []

    class WatchedPairs(Pairs):
        def epoch_pairs(self, max_length: int, *, seed: int, epoch: int) -> Ints:
            epochs.append(epoch)
            return super().epoch_pairs(max_length, seed=seed, epoch=epoch)

    # The shapes of bins depend on the first 50 updates, here of the first epoch only.
    pairs = corpus(1_500)
    watched = WatchedPairs(pairs.src_ids, pairs.src_offsets, pairs.tgt_ids, pairs.tgt_offsets)
    trainer = trainer_of(model_of(), watched, config_of(), max_tokens=75, use_bins=True)
    next(trainer.prepared_updates())
    assert epochs == [0]


def test_dropout_differs_by_micro_batch() -> None:
    """The same sentences twice in one update: only dropout can make their losses differ."""
    found: list[Tensor] = []

    class Recording(Gradients):
        def add(self, batch: Batch | Tensor, scale: Tensor) -> Tensor:
            found.append(super().add(batch, scale))
            return found[-1]

    for dropout in (0.0, 0.2):
        trainer = trainer_of(model_of(dropout=dropout), corpus(), config_of())
        trainer.gradients = Recording(trainer.model, 0.1, Level.EAGER)
        update = next(trainer.updates())
        batch = pack(corpus(), update.pairs)
        trainer.train_step(PreparedUpdate(1, update, 240, 240, [(0, batch), (1, batch)]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[2], found[3])


def test_prefetch_keeps_order() -> None:
    computed: list[int] = []

    def items() -> Iterator[int]:
        for i in range(9):
            computed.append(i)
            yield i

    results = prefetch(items(), lambda i: 10 * i)
    assert next(results) == 0
    assert computed == [0, 1, 2]
    assert list(results) == [10, 20, 30, 40, 50, 60, 70, 80]


# Equation 3


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, 1.746928107e-07),  # 1 / (sqrt(512) * 4000 sqrt(4000))
        (1_000, 1.746928107e-04),
        (4_000, 6.987712430e-04),  # 1 / (sqrt(512) sqrt(4000)), the peak
        (16_000, 3.493856215e-04),  # half of it at four times the step
        (100_000, 1.397542486e-04),  # a fifth of it at 25 times the step
    ],
)
def test_learning_rate_of_base_model(step: int, expected: float) -> None:
    assert learning_rate(step, d_model=512, warmup_steps=4_000) == pytest.approx(expected, rel=1e-9)


def test_scale_multiplies_learning_rate() -> None:
    plain = learning_rate(7, d_model=64, warmup_steps=5)
    assert learning_rate(7, d_model=64, warmup_steps=5, scale=2.5) == pytest.approx(2.5 * plain)
