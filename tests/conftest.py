"""What several tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no mistake of the code's.
settings.register_profile("any-speed", deadline=None)
settings.load_profile("any-speed")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real corpora and golden files beside the checkout, which are no part of the project."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real corpora and golden files are not at {folder}")
    return folder
