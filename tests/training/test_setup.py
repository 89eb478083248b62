"""What the process keeps of the memory that a step frees."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
from nmtkit.training.setup import keep_freed_memory

def faults():
    bytearray(b"a") * 120_000_000  # freed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"a") * 80_000_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
keep_freed_memory()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")
def test_kept_memory_is_not_cleared_again() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], check=True, capture_output=True)
    without, kept = map(int, done.stdout.split())
    assert without > 100 > kept  # 20,000 pages, fewer if huge
