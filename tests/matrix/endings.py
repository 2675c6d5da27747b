"""Ends of the processes of cells."""

import os
import signal
import time

from graphpass.matrix.cells import CellResult
from graphpass.matrix.progress import Position
from graphpass.progress import Stage


def _position(text):
    stage = Stage(text)
    return Position(stage, stage, 0)


def converts(cell, sender, scratch):
    sender.send(_position(str(scratch)))
    sender.send(CellResult(cell, "converted"))
    sender.close()


def exits(_, __, scratch):
    (scratch / "log").write_text("first\nlast words\n")
    os._exit(3)


def is_killed(_, __, ___):
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(_, __, ___):
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(_, sender, ___):
    sender.send(_position("started"))
    time.sleep(60)
