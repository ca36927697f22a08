"""Processes that end with this one, however it ends, also by SIGKILL."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

_MARK = "_COVSHIFT_SHARES_FATE"

# What the watcher reads ends when this process does, since nobody else holds the other end of the pipe. It holds each
# process by a descriptor while it looks: a number could belong to another one by the time that it is used.
_WATCH = """
import os, signal, sys, time
from contextlib import suppress
mark = sys.argv[1].encode()
def kill(name):
    process = os.pidfd_open(int(name))
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            marked = mark in file.read().split(bytes(1))
        if marked:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        return marked
    finally:
        os.close(process)
sys.stdin.read()
looks = 5  # one may start another while this looks, and has no environment for a moment
for _ in range(50):
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if kill(name):
                looks = 5
    looks -= 1
    if not looks:
        break
    time.sleep(0.1)
"""


@contextmanager
def sharing_fate() -> Iterator[None]:
    """Kill all that this process starts in a block, and what that starts, at the end of the block or of this process.

    Ray's own agents notice that the rest is gone, and then try for a minute to report that to what is gone. Systems
    other than Linux are left to Ray.
    """
    if not hasattr(signal, "pidfd_send_signal"):
        yield
        return
    mark = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", "-c", _WATCH, f"{_MARK}={mark}"]
    # In a session of its own, Ctrl-C in the terminal does not reach it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):  # noqa: S603
        os.environ[_MARK] = mark
        try:
            yield
        finally:
            del os.environ[_MARK]
