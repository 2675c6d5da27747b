"""Hooks between passes: timing, printing, dumps and checks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

from graphpass.engine.passes import Pass, PassResult, Skipped
from graphpass.ir.bodies import inlined
from graphpass.ir.model import Model


class Instrumentation:
    """Hooks around a pipeline and each of its passes; they do nothing by default.

    Examples:
        >>> import graphpass
        >>> class Names(graphpass.Instrumentation):
        ...     def before_pass(self, step, model):
        ...         print(step.name)
        >>> manager = graphpass.PassManager(graphpass.parse("fuse-functions"), [Names()])
        >>> _ = manager.run(graphpass.load("build/fixtures/llama/onnx"))
        fuse-functions
    """

    def before_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:
        """Observe the working copy, before the first pass.

        Args:
            passes: The pipeline.
            model: The working copy; hooks must not modify it.
        """

    def after_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:
        """Observe the result, after the last pass.

        Args:
            passes: The pipeline.
            model: The result.
        """

    def before_pass(self, step: Pass[Model], model: Model) -> None:
        """Observe the model before the pass runs, when its requirements hold.

        Args:
            step: The pass.
            model: The model before the pass.
        """

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:
        """Observe the resulting model when the conditions that the pass ensures hold.

        Args:
            step: The pass.
            model: The model after the pass.
            result: The result of the pass.
        """

    def pass_failed(self, step: Pass[Model], model: Model, error: Exception) -> None:
        """Observe the model in the state at the failure; the manager raises afterwards.

        Args:
            step: The pass.
            model: The model, possibly partially edited.
            error: The exception of the pass.
        """


class PrintAll(Instrumentation):
    """Prints the text form of the model after each pass."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """Create an observer.

        Args:
            note: Called with each text, which starts with a heading.
        """
        self._note = note

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:
        suffix = "" if _has_changed(result) else ", unchanged"
        self._note("\n".join([f"// after {step.name}{suffix}", *([] if suffix else _lines(model))]))


class PrintChanged(Instrumentation):
    """Prints the lines of the text form that a pass removed and added."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """Create an observer.

        Args:
            note: Called with a unified diff for each pass that changed the model.
        """
        self._note = note
        self._before: list[str] = []

    def before_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:  # noqa: ARG002
        self._before = _lines(model)

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:
        if not _has_changed(result):
            return
        before, self._before = self._before, _lines(model)
        titles = f"before {step.name}", f"after {step.name}"
        difference = list(difflib.unified_diff(before, self._before, *titles, lineterm="", n=1))
        self._note("\n".join(difference or [f"--- {step.name}: the text is unchanged"]))


class DumpDir(Instrumentation):
    """Writes the model after each pass as ``NN-pass-name.xml`` or ``.onnx``."""

    def __init__(self, folder: Path) -> None:
        """Create an observer.

        Args:
            folder: Folder for the models; created if missing.
        """
        self._folder = folder
        self._number = 0

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: ARG002
        from graphpass.io import save

        self._number += 1
        suffix = ".onnx" if model.dialect == "onnx" else ".xml"
        save(model, self._folder / f"{self._number:02}-{step.name}{suffix}")


def _has_changed(result: PassResult) -> bool:
    return not isinstance(result, Skipped) and result.changed


def _lines(model: Model) -> list[str]:
    from graphpass.ir.text.printer import text_of

    return text_of(inlined(model).graph).splitlines()
