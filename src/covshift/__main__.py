"""The `covshift` command, also as `python -m covshift`."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

_STOPPED = "stopped by Ctrl-C\n"


def main() -> None:
    """Run the command; Ctrl-C at any time, also while libraries are imported, ends it with one line and code 130."""
    interrupted = ours = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        if _imports(frame):
            os.write(2, _STOPPED.encode())
            os._exit(130)
        signal.default_int_handler(number, frame)

    try:
        if ours := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
        from covshift.cli import app
        from covshift.support.allocator import keep_freed_memory

        keep_freed_memory()
        app()
    except SystemExit as end:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _leave(end.code)
        raise
    except (KeyboardInterrupt, Exception):
        # What Ctrl-C interrupts may turn it into any error of its own.
        if not interrupted:
            raise
        sys.stderr.write(_STOPPED)
        sys.exit(130)
    finally:
        if ours:  # what is left is the end of the interpreter, where our handler would only cause a traceback
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported: its compiled code may abort on an exception, with a page of words."""
    while frame is not None:
        if frame.f_code.co_name == "_call_with_frames_removed":
            return True
        frame = frame.f_back
    return False


def _leave(code: Any) -> None:
    """End a rank of torchrun without taking the interpreter down around it.

    A thread of gloo may still hold the tensors of the last exchange; it gives them back to Python, and aborts the
    process where there is no Python any more. All that Python itself would do at its end is done before: it waits for
    threads, calls what was registered for the end, and writes what is left of the output.
    """
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # of a pipe that nobody reads
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main()
