"""Run any two models on the same arrays, caches and tokens or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from graphpass.dialects.text import noise
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dimension
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.verify.difference import OutputComparer, Tolerance

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.ir.text.statements import Statement
    from graphpass.runtime.sessions.inputs import Array

#: Size of dimensions that have none.
_SIZE = 3


def noise_for(statements: Iterable[Statement], sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Return random arrays for the inputs of a graph; names decide the elements.

    Args:
        statements: The graph.
        sizes: Sizes of symbolic dimensions by name; 3 for others.
    """

    def size(dimension: Dimension) -> int:
        return dimension if isinstance(dimension, int) else (sizes or {}).get(str(dimension), _SIZE)

    found: dict[str, Array] = {}
    for statement in statements:
        if statement.kind == "Parameter":
            (name,), (type_,) = statement.results, statement.types
            found[name] = noise(type_.element_type, tuple(map(size, type_.shape or ())), name)
    return found


def evaluate(model: Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a model once in the runtime of its dialect.

    Raises:
        UnsupportedError: GP321 the runtime refuses the model; GP322 it failed.
    """
    return open_request(model, Device()).infer(dict(feeds))


def takes(model: Model, feeds: Iterable[str]) -> bool:
    """Return whether a model has no other inputs, and no variables."""
    return {port.name for port in model.inputs} <= set(feeds) and not any(model.graph.of_op("ReadValue"))


def difference_on(
    reference: Mapping[str, Array], candidate: Model, feeds: Mapping[str, Array], tolerance: float = 1e-4
) -> str | None:
    """Compare the outputs of a model with known ones.

    Args:
        reference: The outputs that are right.
        candidate: The model in question.
        feeds: Its inputs; those that it has not are left out.
        tolerance: Absolute and relative.

    Returns:
        The first difference; ``None`` if there is none.
    """
    names = {port.name for port in candidate.inputs}
    try:
        found = evaluate(candidate, {name: array for name, array in feeds.items() if name in names})
    except UnsupportedError as error:
        return f"the result does not run: {error.message}"
    comparer = OutputComparer(Tolerance(tolerance, tolerance))
    for name, expected in reference.items():
        if name not in found:
            return f"output {name} is missing"
        if (difference := comparer.compare((0, 0), name, expected, found[name])) is not None:
            return f"output {name}{list(difference.index) or ''}: {difference.reason}"
    return None
