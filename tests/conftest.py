"""Fixtures of several packages."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from nmtkit.utils import progress

if TYPE_CHECKING:
    from nmtkit import Translator

# No deadline: a busy machine must not fail tests. `make test-all` tries more examples.
settings.register_profile("few", deadline=None, max_examples=25)
settings.register_profile("many", deadline=None, max_examples=200)
settings.load_profile("few")

# A shell starts background jobs with SIGINT ignored, and their child processes inherit that. A test
# that interrupts a command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of converted models, for tests and the commands that they start."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process, and in forks of it, print what a new process prints."""
    monkeypatch.setattr(progress, "printed_kinds", set())
    monkeypatch.setattr(progress.console, "quiet", False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real corpora and expected outputs next to the checkout, which are not part of the project."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"there are no real corpora and expected outputs at {folder}")
    return folder


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a tiny random model."""
    from bundles import publish_bundle  # imports torch
    from models import tiny

    return publish_bundle(tmp_path_factory.mktemp("bundle"), tiny(max_positions=24), seed=3)


@pytest.fixture(scope="session")
def translator(bundle: Path) -> "Translator":
    """The bundle, loaded into the torch engine."""
    from nmtkit import Translator

    return Translator(bundle, device="cpu", engine="torch")
