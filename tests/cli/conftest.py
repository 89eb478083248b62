"""A bundle that several commands read, and what it translates."""

from pathlib import Path

import pytest
from bundles import publish_bundle
from models import tiny

import nmtkit
from nmtkit.config.settings import EngineName


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_bundle(tmp_path_factory.mktemp("bundle"), tiny(max_positions=24), seed=3)


@pytest.fixture(scope="session")
def translator(bundle: Path) -> nmtkit.Translator:
    return nmtkit.Translator(bundle, device="cpu", engine=EngineName.TORCH)
