"""Passes that bring their process down or never end, and a target with a bug."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from graphpass.engine.passes import Done, Pass
from graphpass.engine.target import Target
from graphpass.ir.types import Dialect


@dataclass(frozen=True)
class Die(Pass[Any]):
    """End the process as the kernel does when memory is short."""

    name: ClassVar[str] = "test-die"

    def run(self, model):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DieOnce(Pass[Any]):
    """End the process as the kernel does, unless a file says that this was done."""

    name: ClassVar[str] = "test-dieonce"
    mark: str = "mark"

    def run(self, model):
        if not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Done()


@dataclass(frozen=True)
class Exit(Pass[Any]):
    """End the process as a library does."""

    name: ClassVar[str] = "test-exit"

    def run(self, model):
        os.write(2, b"terminate called\n")
        os._exit(7)


@dataclass(frozen=True)
class Hang(Pass[Any]):
    """Never end, once somebody has read the process id from a pipe; do nothing if that pipe does not exist."""

    name: ClassVar[str] = "test-hang"
    pipe: str | None = None

    def run(self, model):
        if self.pipe is None or Path(self.pipe).exists():
            if self.pipe is not None:
                Path(self.pipe).write_text(str(os.getpid()))
            threading.Event().wait()
        return Done()


@dataclass(frozen=True)
class Broken(Target):
    """Raise an unexpected error."""

    name: ClassVar[str] = "test-broken"
    description: ClassVar[str] = "a target with a bug"
    dialect: ClassVar[Dialect] = "openvino"
    output_file: ClassVar[str] = "openvino_model.xml"

    def pipeline(self, model):
        raise ZeroDivisionError("by zero")
