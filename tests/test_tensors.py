"""Tensor files can be read from any path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmtkit.store.tensors import load_tensors, save_tensors
from nmtkit.utils.errors import UserError

LOAD = """
import sys
from pathlib import Path
from nmtkit.store.tensors import load_tensors
print(load_tensors(Path(sys.argv[1]))["a"].tolist())
"""
# An empty /proc in a new mount namespace; /dev/fd depends on /proc.
HIDE = 'mount -t tmpfs none /proc && exec "$@"'
NAMESPACE = ["unshare", "-m", "sh", "-c", HIDE, "sh"]


@pytest.mark.parametrize("name", [b"m", "ä 猫".encode(), b"\xff"])
def test_load_any_file_name(name: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    save_tensors({"a": torch.arange(3.0)}, path)
    moved = path.rename(tmp_path / os.fsdecode(name))
    assert load_tensors(moved)["a"].tolist() == [0, 1, 2]


def test_load_without_proc(tmp_path: Path) -> None:
    try:
        subprocess.run([*NAMESPACE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system does not allow mount namespaces")
    path = tmp_path / "tensors"
    save_tensors({"a": torch.arange(3.0)}, path)
    command = [*NAMESPACE, sys.executable, "-c", LOAD, str(path)]
    ended = subprocess.run(command, capture_output=True, check=True)
    assert ended.stdout == b"[0.0, 1.0, 2.0]\n"


def test_unreadable_file_need_not_go(tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    path.write_bytes(b"x" * 100)
    with pytest.raises(UserError) as refused:
        load_tensors(path)
    assert "; delete " not in str(refused.value)
