"""Find caches that are rounded to integers whenever they are read."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.pairs import look_through_moves
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model

#: Relative difference of input and output ranges below which rounded numbers keep their level.
_ROUNDING = 1e-5

#: Orders of axes that are their own inverse.
_ORDERS = ((0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 1, 3))


@dataclass(frozen=True, slots=True)
class RoundedCache:
    """A cache whose past and new positions are all rounded in each step.

    Rounding twice is rounding once, so a cache of rounded numbers has the same results.

    Attributes:
        cache: The cache.
        append: The Concat of past and new positions.
        port: Input of the Concat with the new positions.
        quantizers: The users of the Concat besides the write; each rounds to the same numbers.
        order: Axes of the quantizers' results in the cache's order.
    """

    cache: Cache
    append: Node
    port: int
    quantizers: tuple[Node, ...]
    order: tuple[int, ...]


def find_rounded(model: Model) -> tuple[RoundedCache, ...]:
    """Return the caches that all users round by equal FakeQuantize, for `Model.analysis`.

    Ranges are scalars, and equal for input and output. A Transpose may be before the FakeQuantize.
    """
    found = (_rounded(model.graph, cache) for cache in analyze_caches(model).of_kind("kv"))
    return tuple(cache for cache in found if cache is not None)


def _rounded(graph: Graph, cache: Cache) -> RoundedCache | None:
    write = graph.writes.get(str(cache.write))
    append = None if write is None else graph.producer(write.source())
    if append is None or append.op != "Concat" or len(append.sources) != 2:
        return None
    past = graph.reads[cache.read].outputs[0]
    new = [port for port in (0, 1) if look_through_moves(graph, append.source(port)) != past]
    orders = {_order(use.node) for use in graph.uses(append.outputs[0]) if use.node.op == "Transpose"}
    quantizers = []
    for use in graph.forward(append.outputs, lambda use: use.node.outputs if use.node.op == "Transpose" else ()):
        if use.node.op == "FakeQuantize" and use.port == 0:
            quantizers.append(use.node)
            orders.add(_order(graph.producer(use.node.source())))
        elif use.node.op not in {"Assign", "Result", "ShapeOf", "Transpose"}:
            return None
    ranges = {_range(graph, node) for node in quantizers}
    order = orders.pop() if len(orders) == 1 else None
    if len(new) != 1 or order is None or len(ranges) != 1 or None in ranges:
        return None
    return RoundedCache(cache, append, new[0], tuple(quantizers), order)


def _order(node: Node) -> tuple[int, ...] | None:
    """Return the supported order of axes of a Transpose, for others the natural order."""
    order = tuple(node.attributes.get("order", ())) if node.op == "Transpose" else _ORDERS[0]
    return order if order in _ORDERS else None


def _range(graph: Graph, node: Node) -> tuple[float, float, int] | None:
    """Return bounds and number of levels; ``None`` if bounds differ or are vectors."""
    low, high, first, last = (fold_scalar(graph, value) for value in node.sources[1:])
    if low is None or high is None or first is None or last is None:
        return None
    are_equal = all(isclose(*pair, rel_tol=_ROUNDING) for pair in ((low, first), (high, last)))
    return (low, high, int(native_attributes(node)["levels"])) if are_equal else None
