"""Find outputs with the new entries of a cache alone, which callers append."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.values import REALS, fixed_size


@dataclass(frozen=True, slots=True)
class NewEntries:
    """An output with new entries, and the tensor with all entries.

    Attributes:
        result: The Result of the new entries.
        whole: Past and new entries, concatenated.
        axis: Axis of the entries.
    """

    result: Node
    whole: Value
    axis: int


def find_new_entries(model: Model) -> tuple[NewEntries, ...]:
    """Return the outputs with new entries of inputs that have no other present.

    Args:
        model: Any model; it is not modified.
    """
    inventory = model.analysis(analyze_caches)
    paired = {cache.read for cache in inventory.caches} | {cache.write for cache in inventory.caches}
    results = [result for result in model.graph.of_op("Result") if result.name not in paired]
    return tuple(found for result in results for found in _appended(model.graph, result, paired))


def _appended(graph: Graph, result: Node, paired: set[str | None]) -> Iterator[NewEntries]:
    """Yield the Concat of a past and the entries of ``result``, if exactly one."""
    new = result.source()
    while graph.producer(new).op == "Identity":
        new = graph.producer(new).source()
    joins = [use.node for use in graph.uses(new) if use.node.op == "Concat" and use.node.inputs[1:] == (new,)]
    pasts = [graph.producer(node.source()) for node in joins]
    if len(joins) != 1 or pasts[0].op != "Parameter" or pasts[0].name in paired:
        return
    axis, past = joins[0].attributes["axis"], pasts[0].outputs[0]
    # Callers of a past of fixed size, as of `make-static`, write the entries into it.
    if past.element_type in REALS and past.rank in {3, 4} and fixed_size(past, axis) is None:
        yield NewEntries(result, joins[0].outputs[0], axis)
