"""Define passes, their conditions and results."""

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
    """Reports that the pass ran to its end; the manager observes changes.

    Attributes:
        statistics: Counted actions: ``{"attention fused": 12}``; the manager drops them if nothing changed.
        notes: Facts that the user should know, for example parts that were left, with reasons.
        model: Another model to continue with; ``None`` for the given one, and in records.
        changed: Whether the model differs from the one before; set by the manager.

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
    """Reports that the pass does not apply to this model.

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
    """Checks a fact that a pass requires before, or ensures after.

    Attributes:
        name: Name in documentation and errors: ``"stateless"``.
        missing: Returns the flaw, or ``None`` if the condition holds.
        hint: Remedy for the flaw.

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
    """Rewrites a model. Subclasses are frozen dataclasses; their fields are the pass's options.

    Field types may be ``bool``, ``int``, ``float``, ``str``, a ``Literal`` of strings, ``X | None`` of one of these, or
    a ``tuple`` of one of these; every field needs a default. ``graphpass explain`` prints the docstring.

    Attributes:
        name: Name in pipelines, in kebab-case.
        dialect: The dialect it takes; ``None`` for any.
        requires: Conditions before the run.
        only_for: Conditions of the models that it is for; the manager skips others.
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
        """Rewrite ``model`` in place, or make another one.

        Args:
            model: A working copy; a pass that raises may leave it half-way.

        Returns:
            The result. Edits through `Model.rewriter` and `OnnxModel.graphsurgeon` are observed; a pass that edits the
            native model calls `Model.mark_edited`.

        Raises:
            PreconditionError: The model is not of the form that this pass takes.
            UnsupportedError: The model holds something that this pass cannot handle.
        """


def first_line(error: Exception) -> str:
    """Return type and words of an error on one line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{type(error).__name__}: {' '.join(line.strip() for line in lines[:4])}"
