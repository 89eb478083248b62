"""Kernels compiled for vectors of each width that this processor has."""

import platform
from ctypes import CDLL
from pathlib import Path

import pytest

from nmtkit.kernels import library

TORCH = "torch"
NATIVE = "as wide as can be"
NARROWER = {"no AVX-512": ("-mno-avx512f",), "no AVX": ("-mno-avx",)}  # options of the compiler
WIDTHS = [NATIVE, *NARROWER] if platform.machine() in ("x86_64", "AMD64") else [NATIVE]


def _compiled(width: str, cache: Path) -> CDLL:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setattr(library, "FLAGS", (*library.FLAGS, *NARROWER.get(width, ())))
        loaded = library._library.__wrapped__()
    if loaded is None:
        pytest.skip("there is no C++ compiler")
    return loaded


@pytest.fixture(scope="session", params=WIDTHS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CDLL:
    return _compiled(request.param, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", params=[*WIDTHS, TORCH])
def compiled_or_none(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> CDLL | None:
    if request.param == TORCH:
        return None
    return _compiled(request.param, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def kernels(compiled: CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use kernels."""
    monkeypatch.setattr(library, "library", lambda: compiled)


@pytest.fixture
def kernels_or_torch(compiled_or_none: CDLL | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use kernels, or torch's operations."""
    monkeypatch.setattr(library, "library", lambda: compiled_or_none)
