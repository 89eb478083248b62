import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
from nmtkit.training.setup import keep_freed_memory
if {keep}:
    keep_freed_memory()
bytearray(b"a") * 120_000_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(b"a") * 80_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(*, keep: bool) -> int:
    """Return the page faults of filling 80 MB, after 120 MB were freed."""
    command = [sys.executable, "-c", STEPS.format(keep=keep)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")
def test_kept_memory_is_not_cleared_again() -> None:
    assert _faults(keep=False) > 100  # 20,000 pages, fewer if huge
    assert _faults(keep=True) < 100
