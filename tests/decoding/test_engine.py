"""What is translated at a time: a minute's work, told from the model and the machine alone."""

import pytest
import torch
from models import BASE, tiny

from nmtkit.decoding.engine import MAX_LINES, lines_per_minute
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.model.transformer import Transformer


def test_a_minute_is_some_hundred_lines_of_the_base_model() -> None:
    """Two cores translate some ten such lines a second with four beams."""
    assert 300 < lines_per_minute(63_000_000, beam_size=4, n_cores=2) < 1_200


def test_lines_grow_with_cores_and_shrink_with_weights_and_beams() -> None:
    lines = lines_per_minute(50_000_000, 4, 2)
    assert lines_per_minute(50_000_000, 4, 4) == 2 * lines
    assert lines_per_minute(100_000_000, 4, 2) == lines // 2
    assert lines_per_minute(50_000_000, 8, 2) == lines // 2
    assert lines_per_minute(10**12, 1_024, 1) == 1
    assert lines_per_minute(1_000, 1, 2) == MAX_LINES


def test_all_models_of_an_ensemble_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with torch.device("meta"):
        model = Transformer(tiny(**BASE), 36_864)
    monkeypatch.setattr(TorchEngine, "device", "cpu")
    alone = TorchEngine(model, 36_864).lines_per_minute(4)
    assert alone == lines_per_minute(sum(p.numel() for p in model.parameters()), 4, 1)
    assert TorchEngine(model, 36_864, (model,)).lines_per_minute(4) == alone // 2
