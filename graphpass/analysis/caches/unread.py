"""Find states that a model returns, and does not read."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.model import Model
from graphpass.ir.values import REALS

#: Least fixed sizes of a state: channels, and columns or elements; heads and head_dim of keys and values.
_FIXED = 2


def unread_states(model: Model) -> tuple[str, ...]:
    """Return inputs that no operator reads, of the shape of a returned state."""
    graph = model.graph
    written = {cache.write for cache in analyze_caches(model).caches}
    sizes = [port.shape for port in model.outputs if port.name not in written and port.shape is not None]
    states = [shape for shape in sizes if sum(isinstance(size, int) for size in shape[1:]) >= _FIXED]
    return tuple(
        name
        for name, value in graph.parameters.items()
        if value.element_type in REALS and not graph.uses(value) and any(_fits(value.shape, state) for state in states)
    )


def _fits(shape: tuple[int | str | None, ...] | None, state: tuple[int | str | None, ...]) -> bool:
    if shape is None or len(shape) != len(state):
        return False
    pairs = zip(shape[1:], state[1:], strict=True)
    return all(size == own for size, own in pairs if isinstance(size, int) and isinstance(own, int))
