"""`nmtkit bench translate`: its measurements and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from chains import tiny_pipeline
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.stages import average, prepare, train
from nmtkit.utils.errors import UserError


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pipeline = tiny_pipeline(tmp_path_factory.mktemp("chain"), d_k=2, d_v=2)
    prepare.run(pipeline)
    train.run(pipeline)
    return average.run(pipeline).path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("a a a\n\na a\na\na a a a\n", encoding="utf-8", newline="\n")
    return path


def measure(bundle: Path, text: Path, *options: str) -> list[dict[str, Any]]:
    arguments = ["bench", "translate", "--bundle", bundle, "-i", text, "--device", "cpu", *options]
    ended = CliRunner().invoke(cli.app, [*map(str, arguments), "--json"], catch_exceptions=False)
    return json.loads(ended.stdout)  # type: ignore[no-any-return]


def test_speed_by_beam_size(bundle: Path, text: Path) -> None:
    speeds = measure(bundle, text, "--dtype", "int8", "--beam", "2", "--beam", "1")
    assert [speed["beam_size"] for speed in speeds] == [2, 1]
    for speed in speeds:
        assert (speed["engine"], speed["dtype"]) == ("ctranslate2", "int8")
        assert speed["sentences"] == 4
        assert speed["tokens_per_second"] >= speed["sentences_per_second"] > 0
        assert speed["peak_bytes"] > 10**8


def test_empty_text_is_refused(bundle: Path, text: Path) -> None:
    text.write_text("\n\n", encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match="has no lines to translate"):
        measure(bundle, text)
