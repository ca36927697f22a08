"""The `covshift` command, also as `python -m covshift`."""

import signal
import sys
from types import FrameType


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
    except (KeyboardInterrupt, Exception):
        # A compiled module whose import Ctrl-C interrupts may fail with any error of its own.
        if not interrupted:
            raise
        sys.stderr.write("stopped by Ctrl-C\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
