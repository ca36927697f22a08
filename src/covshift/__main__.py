"""The `covshift` command, also as `python -m covshift`."""

import atexit
import os
import signal
import sys
from types import FrameType
from typing import Any


def main() -> None:
    """Run the command; Ctrl-C at any time, also while libraries are imported, ends it with one line and code 130."""
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from covshift.cli import app

        app()
    except SystemExit as end:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _leave(end.code)
        raise
    except (KeyboardInterrupt, Exception):
        # A compiled module whose import Ctrl-C interrupts may fail with any error of its own.
        if not interrupted:
            raise
        sys.stderr.write("stopped by Ctrl-C\n")
        sys.exit(130)


def _leave(code: Any) -> None:
    """End a rank of torchrun without taking the interpreter down around it.

    A thread of gloo may still hold the tensors of the last exchange; it gives them back to Python, and aborts the
    process where there is no Python any more.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    main()
