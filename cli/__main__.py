"""Entry point of the program ``graphpass``, which handles interrupts during imports, too."""

from __future__ import annotations

import sys

from .interrupts import INTERRUPTED, ignore_interrupts, leave_at_once, raise_interrupts


def run() -> None:
    """Run the program, and exit with its code."""
    leave_at_once()
    from .main import main

    try:
        raise_interrupts()
        code = main(in_child=True)
        ignore_interrupts()  # the command is complete
    except KeyboardInterrupt:
        code = INTERRUPTED
        sys.stderr.write("interrupted\n")
    sys.exit(code)


if __name__ == "__main__":
    run()
