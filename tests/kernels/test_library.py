"""Kernels are compiled once and published whole; whatever prevents it, torch does the work."""

import os
import shutil
import subprocess
from collections.abc import Callable
from ctypes import CDLL
from functools import cache
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
import torch

from nmtkit.kernels import library
from nmtkit.kernels.library import ARGUMENTS, cache_folder, kernel_for

Load = Callable[[], CDLL | None]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """What a new process does, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-O0"))  # compiles faster
    if not any(map(shutil.which, library.COMPILERS)):
        pytest.skip("there is no C++ compiler")
    return library._library.__wrapped__


def kept() -> list[str]:
    return sorted(path.name for path in cache_folder().iterdir())


def test_kernels_are_compiled_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load()
    assert first is not None
    assert all(hasattr(first, f"{name}_float32") for name in ARGUMENTS)
    (name,) = kept()
    monkeypatch.setattr(library, "_compile", None)
    assert load() is not None
    assert kept() == [name]


def test_every_source_is_compiled_and_hashed() -> None:
    written = {path.name for path in library.FOLDER.iterdir() if path.suffix in (".cpp", ".h")}
    assert written == {*library.SOURCES, *library.HEADERS}


def test_threads_wait_for_one_compilation(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    n_compiled = []
    compile_ = library._compile

    def counted(place: Path) -> None:
        n_compiled.append(place)
        compile_(place)

    monkeypatch.setattr(library, "_compile", counted)
    monkeypatch.setattr(library, "_library", cache(load))
    together = Barrier(3)

    def use() -> None:
        together.wait()
        assert kernel_for("attend", torch.zeros(1)) is not None

    threads = [Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(n_compiled) == 1


@pytest.mark.parametrize("changed", [{"COMPILERS": ("no-such-compiler",)}, {"SECONDS": 0.001}])
def test_torch_does_the_work_without_a_compiler(
    changed: dict[str, Any], load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(library, name, value)
    assert load() is None
    assert not cache_folder().exists() or kept() == []


def test_a_compiler_that_fails_leaves_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "FLAGS", ("--no-such-option",))
    assert load() is None
    assert kept() == []


def test_a_cache_that_cannot_be_written_is_no_obstacle(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load() is None


def test_without_a_home_nothing_is_compiled(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")

    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", no_home)
    assert load() is None


def test_damaged_kernels_are_compiled_again(load: Load) -> None:
    folder = cache_folder()
    folder.mkdir(parents=True)
    place = folder / f"{library._fingerprint()}.so"
    place.write_bytes(b"\x7fELF, cut short")
    place.chmod(0o700)
    assert load() is not None
    assert kept() == [place.name]


def test_kernels_that_others_can_write_are_not_loaded(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load() is not None
    (name,) = kept()
    (cache_folder() / name).chmod(0o770)
    with pytest.raises(PermissionError):
        library._load(cache_folder() / name)
    loaded = load()  # compiled again
    assert loaded is not None
    assert (cache_folder() / name).stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: 1_234_567)
    with pytest.raises(PermissionError):
        library._load(cache_folder() / name)
    assert load() is None
    assert tmp_path in cache_folder().parents


def test_another_processor_gets_kernels_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = library._fingerprint()
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(library, "CPUINFO", cpuinfo)
    found = {here, library._fingerprint()}  # the latter of a system without such a file
    for flags in ("sse4_2 avx2", "sse4_2 avx2 avx512f"):
        cpuinfo.write_text(
            f"processor\t: 0\ncpu MHz\t\t: 2400.1\nflags\t\t: {flags}\n\nprocessor\t: 1\n",
            encoding="utf-8",
        )
        found.add(library._fingerprint())
    assert len(found) == 4
    cpuinfo.write_text(
        cpuinfo.read_text(encoding="utf-8").replace("2400.1", "3100.7"), encoding="utf-8"
    )
    assert library._fingerprint() in found


def test_other_tensors_have_no_kernel() -> None:
    assert kernel_for("attend", torch.zeros(1, dtype=torch.float64)) is None
    assert kernel_for("attend", torch.zeros(1, device="meta")) is None


def test_the_compiler_warns_of_nothing(tmp_path: Path, load: Load) -> None:
    assert load is not None
    compiler = next(filter(None, map(shutil.which, library.COMPILERS)))
    sources = [library.FOLDER / name for name in library.SOURCES]
    done = subprocess.run(
        [compiler, *library.FLAGS, "-Wall", "-Wextra", "-Werror", *sources, "-o", tmp_path / "so"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
