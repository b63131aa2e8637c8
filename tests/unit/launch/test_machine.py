"""What processes ask of the machine that they run on."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy
from mdgan.launch.machine import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

assert keep_freed_memory()
kept = []
for _ in range(10):
    before = faults()
    kept = [numpy.ones(4 << 20) for _ in range(2)]
    kept.clear()
    print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
@pytest.mark.slow
def test_freed_memory_is_used_again() -> None:
    told = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, timeout=60, check=True
    )
    first, *others = map(int, told.stdout.split())
    assert first > 1000, "64 MB, in pages of 4 kB or, where the kernel has them, larger ones"
    assert max(others) < first / 10
