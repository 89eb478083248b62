"""What training asks of the disk before it begins."""

import shutil
from pathlib import Path

import pytest
import torch

from nmtkit.errors import UserError
from nmtkit.model.transformer import Transformer
from nmtkit.recipe_file import load_recipe
from nmtkit.stages.train import _set_up

STEPS = ["training.max_steps=40", "training.checkpoint_every_steps=10"]


@pytest.mark.parametrize(
    ("overrides", "n_checkpoints"),
    [
        ([*STEPS, "training.keep_checkpoints=3", "averaging.n_checkpoints=2"], 3 + 1),
        ([*STEPS, "training.keep_checkpoints=20"], 4 + 1),
        (["training.checkpoint_every_minutes=1.0", "training.keep_checkpoints=20"], 20 + 1),
    ],
)
def test_room_for_all_checkpoints_is_needed_but_for_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], n_checkpoints: int
) -> None:
    recipe = load_recipe("demo", overrides)
    with torch.device("meta"):
        model = Transformer(recipe.model, 80)
    n_bytes = n_checkpoints * 12 * sum(parameter.numel() for parameter in model.parameters())
    usage = shutil.disk_usage(tmp_path)._replace(free=n_bytes - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=rf"^train needs {n_bytes:,} bytes in {tmp_path}, where"):
        _set_up(tmp_path, recipe, model, 80)
    assert list(tmp_path.iterdir()) == []
    checkpoint = tmp_path / "checkpoints" / "step-00000010"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"1")
    _set_up(tmp_path, recipe, model, 80)
    assert (tmp_path / "model.json").is_file()
