"""`Pass`, its conditions, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias, TypeVar

from graphpass.errors import GraphpassError, PassFailedError
from graphpass.ir.model import Model

if TYPE_CHECKING:
    from graphpass.ir.types import Dialect

__all__ = [
    "Condition",
    "Done",
    "Pass",
    "PassResult",
    "Skipped",
    "at_node",
    "first_line",
]

ModelT = TypeVar("ModelT", bound=Model)


@dataclass(frozen=True, slots=True)
class Done:
    """The pass ran to its end.

    Attributes:
        statistics: Counts by label, ``{"attention fused": 12}``; the manager drops them if nothing changed.
        notes: Facts that the user should know, for example what was left as it was and why.
        model: Another model to go on with; ``None`` for the given one, and in records.
        changed: Whether the model differs from the one before; set by the manager.
    """

    statistics: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    model: Model | None = None
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """The pass does not apply to this model.

    Attributes:
        reason: Why not.
    """

    reason: str


PassResult: TypeAlias = Done | Skipped


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that a pass needs to hold before, or promises to hold after.

    Attributes:
        name: How documentation and errors call it: ``"stateless"``.
        missing: Says what is missing, or ``None`` where the condition holds.
        hint: What to do about it.
    """

    name: str
    missing: Callable[[Model], str | None]
    hint: str | None = None


@dataclass(frozen=True)
class Pass(ABC, Generic[ModelT]):
    """One rewrite of a model. Subclasses are frozen dataclasses; their fields are the pass's options.

    Field types may be ``bool``, ``int``, ``float``, ``str``, a ``Literal`` of strings, ``X | None`` of one of these, or
    a ``tuple`` of one of these; every field needs a default. The docstring is what ``graphpass explain`` prints.

    Attributes:
        name: What pipelines call it, in kebab-case.
        dialect: The dialect it takes; ``None`` where it takes any.
        requires: What must hold before.
        ensures: What holds after, unless the pass was skipped.
    """

    name: ClassVar[str]
    dialect: ClassVar[Dialect | None] = None
    requires: ClassVar[tuple[Condition, ...]] = ()
    ensures: ClassVar[tuple[Condition, ...]] = ()

    @abstractmethod
    def run(self, model: ModelT) -> PassResult:
        """Rewrite ``model`` in place, or make another one.

        Args:
            model: A working copy; a pass that raises may leave it half-way.

        Returns:
            What happened. Edits through `Model.rewriter` and `OnnxModel.graphsurgeon` are observed; a pass that edits
            the native model calls `Model.mark_edited`.

        Raises:
            PreconditionError: The model is not what this pass takes.
            UnsupportedError: The model holds something that this pass cannot handle.
        """


@contextmanager
def at_node(name: str) -> Iterator[None]:
    """Say which node a pass works on, so that what fails inside is reported with it.

    Raises:
        PassFailedError: GP401, for anything that is raised inside and is no graphpass error.
    """
    try:
        yield
    except (GraphpassError, MemoryError):
        raise
    except Exception as error:
        raise PassFailedError("GP401", f"at node {name}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Return type and words of an error on one line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{type(error).__name__}: {' '.join(line.strip() for line in lines[:4])}"
