"""Find outputs with the new entries of a cache alone, which callers append."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.values import REALS, fixed_size


@dataclass(frozen=True, slots=True)
class NewEntries:
    """An output with new entries, and the tensor with all entries.

    Attributes:
        result: The Result of the new entries.
        reader: The Result, or the Transpose before it, that reads the new entries.
        whole: Past and new entries, concatenated.
        axis: Axis of the entries in the output.
    """

    result: Node
    reader: Node
    whole: Value
    axis: int


def find_new_entries(model: Model) -> tuple[NewEntries, ...]:
    """Return the outputs with new entries of inputs that have no other present.

    Args:
        model: Any model; it is not modified.
    """
    inventory, sizes = model.analysis(analyze_caches), model.analysis(infer_sizes)
    paired = {cache.read for cache in inventory.caches} | {cache.write for cache in inventory.caches}
    results = model.graph.of_op("Result")
    return tuple(found for result in results for found in _appended(model.graph, sizes, result, paired))


def _appended(graph: Graph, sizes: Sizes, result: Node, paired: set[str | None]) -> Iterator[NewEntries]:
    """Yield the Concat of a past and the entries of ``result``, if exactly one."""
    for new, reader, order in _layouts(graph, result):
        join = _cut_from(graph, sizes, new) or (_appends(graph, new) if result.name not in paired else None)
        if join is None:
            continue
        past, _, inner = list(_layouts(graph, join))[-1]
        parameter, axis = graph.producer(past), inner[join.attributes["axis"]]
        is_past = parameter.op == "Parameter" and past.element_type in REALS and past.rank in {3, 4}
        is_unpaired = graph.producer(new).op == "Slice" or parameter.name not in paired
        # Callers of a past of fixed size, as of `make-static`, write the entries into it.
        if not is_past or not is_unpaired or fixed_size(past, axis) is not None:
            return
        if [inner[place] for place in order] == sorted(inner):
            yield NewEntries(result, reader, join.outputs[0], axis)
        return


def _layouts(graph: Graph, reader: Node) -> Iterator[tuple[Value, Node, list[int]]]:
    """Yield the input of ``reader``, and of each Transpose or copy before it.

    Yields:
        The value, the operator that reads it, and the axis of the value for each axis of the first one.
    """
    value = reader.source()
    order = list(range(value.rank or 0))
    yield value, reader, order
    while len((reader := graph.producer(value)).sources) == 1 and reader.op in {"Concat", "Identity", "Transpose"}:
        order = [reader.attributes["order"][axis] for axis in order] if reader.op == "Transpose" else order
        value = reader.source()
        yield value, reader, order


def _appends(graph: Graph, new: Value) -> Node | None:
    """Return the only Concat of another tensor and ``new``."""
    joins = [use.node for use in graph.uses(new) if use.node.op == "Concat" and use.node.inputs[1:] == (new,)]
    return joins[0] if len(joins) == 1 else None


def _cut_from(graph: Graph, sizes: Sizes, new: Value) -> Node | None:
    """Return the Concat from whose end a Slice cuts exactly ``new``."""
    node = graph.producer(new)
    cuts = fold_cuts(graph, node)
    join = graph.producer(node.source()) if cuts else node
    if join.op != "Concat" or len(join.inputs) != 2 or len(cuts) != 1:
        return None
    keeps_last = cuts[0].axis == join.attributes["axis"] and cuts[0].step == 1 and cuts[0].reaches_end
    entries = sizes.shape(join.source(1))
    return join if keeps_last and entries is not None and sizes.shape(new) == entries else None
