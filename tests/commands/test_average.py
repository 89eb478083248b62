"""The mean of bundles is the mean of their weights, and a bundle."""

from pathlib import Path

import pytest
import torch
from bundles import publish_bundle
from models import tiny
from safetensors.torch import load_file
from system.command import done, nmtkit, sentence

from nmtkit.commands.average import average
from nmtkit.decoding.bundle import open_bundle
from nmtkit.errors import UserError
from nmtkit.model.description import MODEL
from nmtkit.model.transformer import Transformer
from nmtkit.training.checkpoint import BEGINNING, Snapshot

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return [publish_bundle(folder / str(seed), tiny(), seed) for seed in (1, 2, 3)]


def test_mean_of_bundles_and_a_checkpoint(bundles: list[Path], tmp_path: Path) -> None:
    n_rows = open_bundle(bundles[0]).description.n_rows
    model = Transformer(tiny(), n_rows)
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    checkpoint = Snapshot.of(model, optimizer, BEGINNING).publish(tmp_path)
    place = average([*bundles, checkpoint], tmp_path / "mean")
    sides = [load_file(path / WEIGHTS) for path in (*bundles, checkpoint)]
    mean = load_file(open_bundle(place).verified_weights())
    for name, weight in mean.items():
        expected = torch.stack([side[name] for side in sides]).mean(0)
        torch.testing.assert_close(weight, expected)
    assert (place / MODEL).read_bytes() == (bundles[0] / MODEL).read_bytes()


def test_what_cannot_be_averaged_is_refused(bundles: list[Path], tmp_path: Path) -> None:
    other = publish_bundle(tmp_path / "b", tiny(n_layers=1))
    with pytest.raises(UserError, match="is of another model than"):
        average([bundles[0], other], tmp_path / "mean")
    with pytest.raises(UserError, match="is there already"):
        average(bundles, tmp_path)
    own = tmp_path / "mean.partial" / "notes"
    own.parent.mkdir()
    own.touch()
    with pytest.raises(UserError, match=r"mean\.partial, .* is not nmtkit's; move it away"):
        average(bundles, tmp_path / "mean")
    assert own.exists()
    assert not (tmp_path / "mean").exists()


def test_command_averages_a_recipe_or_bundles(bundles: list[Path], tmp_path: Path) -> None:
    names = [str(path) for path in bundles]
    assert "add --output DIR" in sentence(nmtkit(tmp_path, "average", *names))
    ended = done(nmtkit(tmp_path, "average", *names, "-o", "mean"))
    assert ended.out == "mean\n"
