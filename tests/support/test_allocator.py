"""Memory that is freed and asked for again, of the whole process: each test runs one of its own."""

import platform
import subprocess
import sys

import pytest

AGAIN = """
import resource, torch
from covshift.support.allocator import keep_freed_memory
{before}
for _ in range(30):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros({mib} * 2**18)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(mib: int, before: str = "") -> int:
    """Return how many pages the system gives a process for a tensor as large as some that it has just freed."""
    return int(subprocess.check_output([sys.executable, "-c", AGAIN.format(mib=mib, before=before)], text=True))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc to keep memory")
@pytest.mark.parametrize("mib", [8, 64])
def test_a_command_uses_freed_memory_again_for_tensors_of_any_size(mib):
    assert pages(mib, "keep_freed_memory()") < 100
    if mib == 64:
        assert pages(mib) >= 100  # without it, even where pages are huge: at least one in 2 MiB
