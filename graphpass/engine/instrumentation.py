"""Time, print, dump and check between passes, so that no pass does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from graphpass.engine.passes import Pass, PassResult, Skipped
from graphpass.ir.model import Model


class Instrumentation:
    """Hooks around a pipeline and each of its passes; every hook does nothing by default."""

    def before_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:
        """Observe the working copy, before the first pass."""

    def after_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:
        """Observe the result, after the last pass."""

    def before_pass(self, step: Pass[Model], model: Model) -> None:
        """Observe the model when the pass's requirements hold, before it runs."""

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:
        """Observe the resulting model when the pass's promises hold."""

    def pass_failed(self, step: Pass[Model], model: Model, error: Exception) -> None:
        """Observe the model as the pass left it; the manager raises afterwards."""


class PrintChanged(Instrumentation):
    """Prints how many operators of each type a pass added and removed."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Create an observer.

        Args:
            tell: Takes one line for each pass that changed the model.
        """
        self._tell = tell
        self._before: Counter[str] = Counter()

    def before_pass(self, step: Pass[Model], model: Model) -> None:  # noqa: ARG002
        self._before = _operators(model)

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:
        if isinstance(result, Skipped) or not result.changed:
            return
        after = _operators(model)
        differences = {op: after[op] - self._before[op] for op in sorted(self._before.keys() | after.keys())}
        counts = ", ".join(f"{op} {difference:+d}" for op, difference in differences.items() if difference)
        size = f"{self._before.total()} -> {after.total()} nodes"
        self._tell(f"{step.name}: {counts or 'the same operators'} ({size})")


class DumpDir(Instrumentation):
    """Writes the model after each pass as ``NN-pass-name.xml`` or ``.onnx``."""

    def __init__(self, folder: Path) -> None:
        """Create an observer.

        Args:
            folder: Folder for the models; made if it does not exist.
        """
        self._folder = folder
        self._number = 0

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: ARG002
        from graphpass.io import save

        self._number += 1
        suffix = ".onnx" if model.dialect == "onnx" else ".xml"
        save(model, self._folder / f"{self._number:02}-{step.name}{suffix}")


def _operators(model: Model) -> Counter[str]:
    return Counter(node.op for node in model.graph.nodes)
