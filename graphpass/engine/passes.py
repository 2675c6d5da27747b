"""Passes, their conditions and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeAlias, TypeVar

from graphpass.ir.model import Model
from graphpass.ir.types import Dialect

ModelT = TypeVar("ModelT", bound=Model)


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a pass that ran to its end; the manager records changes.

    Attributes:
        statistics: Counts of actions, for example ``{"attention fused": 12}``; empty if nothing changed.
        notes: Messages for the user, for example unchanged parts with reasons.
        model: A new model that replaces the input; ``None`` to continue with the input, and in records.
        changed: Whether the pass changed the model; set by the manager.

    Examples:
        >>> from graphpass import Done
        >>> Done({"norms fused": 5}, notes=("1 norm stays",)).statistics["norms fused"]
        5
    """

    statistics: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    model: Model | None = None
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """The result of a pass that does not apply to the model.

    Attributes:
        reason: The reason, as a sentence.

    Examples:
        >>> from graphpass import Skipped
        >>> Skipped("the model has no caches").reason
        'the model has no caches'
    """

    reason: str


PassResult: TypeAlias = Done | Skipped


@dataclass(frozen=True, slots=True)
class Condition:
    """A property of a model that a pass requires before it runs, or ensures afterwards.

    Attributes:
        name: Name in documentation and errors: ``"stateless"``.
        missing: Returns the violation; ``None`` if the condition holds.
        hint: Advice to satisfy the condition.

    Examples:
        >>> import graphpass
        >>> onnx = graphpass.Condition("onnx", lambda model: None if model.dialect == "onnx" else "it is OpenVINO IR")
        >>> onnx.missing(graphpass.load("build/fixtures/llama/ov-stateful"))
        'it is OpenVINO IR'
    """

    name: str
    missing: Callable[[Model], str | None]
    hint: str | None = None


@dataclass(frozen=True)
class Pass(ABC, Generic[ModelT]):
    """A rewrite of a model; subclasses are frozen dataclasses with the pass's options as fields.

    Field types are ``bool``, ``int``, ``float``, ``str``, a ``Literal`` of strings, ``X | None`` of one of these, or a
    ``tuple`` of one of these. Every field requires a default. ``graphpass explain`` prints the docstring.

    Attributes:
        name: Name in pipelines, in kebab-case.
        dialect: The required dialect; ``None`` for both.
        requires: Conditions before the run.
        only_for: Conditions on the models to which the pass applies; the manager skips other models.
        ensures: Conditions after the run, unless the pass was skipped.

    Examples:
        >>> from dataclasses import dataclass
        >>> import graphpass
        >>> @dataclass(frozen=True)
        ... class Count(graphpass.Pass):
        ...     name = "count"
        ...
        ...     def run(self, model):
        ...         return graphpass.Done({"operators": len(model.graph.nodes)})
        >>> result = graphpass.PassManager([Count()]).run(graphpass.load("build/fixtures/llama/onnx"))
        >>> result.records[0].step.name
        'count'
    """

    name: ClassVar[str]
    dialect: ClassVar[Dialect | None] = None
    requires: ClassVar[tuple[Condition, ...]] = ()
    only_for: ClassVar[tuple[Condition, ...]] = ()
    ensures: ClassVar[tuple[Condition, ...]] = ()

    @abstractmethod
    def run(self, model: ModelT) -> PassResult:
        """Rewrite ``model`` in place, or return another model.

        Args:
            model: A working copy, which may be partially edited if the pass raises.

        Returns:
            The result. The manager detects edits through `Model.rewriter` and `OnnxModel.graphsurgeon`; a pass that
            edits the native model must call `Model.mark_edited`.

        Raises:
            PreconditionError: The model does not have the form that the pass requires.
            UnsupportedError: The pass does not support a part of the model.
        """


def first_line(error: Exception) -> str:
    """Return the type and the message of an error on one line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{type(error).__name__}: {' '.join(line.strip() for line in lines[:4])}"
