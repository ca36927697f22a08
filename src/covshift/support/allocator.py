"""Control over freed memory in the C library: returning it and requesting it again can take longer than the work."""

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8  # of glibc's mallopt
_MOST = 2**31 - 1
_AHEAD = 64 * 2**20


def give_back_freed_memory() -> None:
    """Return to the system whatever this process has freed, also between tensors that are still in use."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, TypeError, AttributeError):  # not glibc
        return


def keep_freed_memory() -> bool:
    """Make this process keep freed memory for its next tensors; only a command, which owns its process, should.

    Otherwise glibc returns the memory of large tensors to the system and gets it back zeroed, page by page, for the
    next layer: networks on a CPU spend up to half of their time on that. Tensors above 32 MiB would otherwise always be
    mapped apart from the rest, which cannot be kept; so would those above 64 MiB in threads with memory of their own,
    which is why all threads share one.

    Returns:
        Whether the C library supports this.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # not glibc
        return False
    settings = {_TRIM_THRESHOLD: _MOST, _TOP_PAD: _AHEAD, _MMAP_MAX: 0, _ARENA_MAX: 1}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
