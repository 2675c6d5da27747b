"""Find constant masks that a model cuts to the step: GPT-Neo's and GPT-2's ``bias``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.masks.constants import LARGEST_MASK, band_of
from graphpass.analysis.shapes.sizes import Sizes
from graphpass.ir.constants import fold_cuts, starts_at_first
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class MaskBuffer:
    """A condition ``[.., queries, keys]`` cut from a constant that holds a window.

    Attributes:
        condition: The part left of the constant; its last row is that of the last column's place.
        window: Number of positions that a query sees, itself included.
        holds: Whether the condition means seen instead of hidden.
    """

    condition: Value
    window: int
    holds: bool


def find_mask_buffers(model: Model) -> tuple[MaskBuffer, ...]:
    """Return constant windows cut to the places of all keys and the last queries."""
    graph = model.graph
    bands = []
    for node in graph.of_op("Constant"):
        shape = node.outputs[0].shape or ()
        is_square = len(shape) > 1 and shape[-1] == shape[-2]
        is_condition = is_square and node.outputs[0].element_type == "boolean"
        held = graph.constant(node.outputs[0], LARGEST_MASK) if is_condition else None
        band = band_of(held != 0) if held is not None else None
        if held is not None and band is not None and band[0] < held.shape[-1]:
            bands.append((node, *band))
    if not bands:
        return ()
    sizes = find_lengths(model)
    return tuple(
        MaskBuffer(cut.condition, window, holds)
        for node, window, holds in bands
        for cut in _cuts(graph, node)
        if cut.rows is not None and cut.columns is not None and _ends_alike(graph, cut.rows, cut.columns, sizes)
    )


@dataclass(frozen=True, slots=True)
class _Cut:
    condition: Value
    rows: Node | None = None
    columns: Node | None = None


def _cuts(graph: Graph, buffer: Node) -> Iterator[_Cut]:
    pending = [_Cut(buffer.outputs[0])]
    while pending:
        cut = pending.pop()
        yield cut
        for use in graph.uses(cut.condition):
            kept = [] if use.port else [one for one in fold_cuts(graph, use.node) if one.step == 1]
            axis = kept[0].axis - (cut.condition.rank or 0) if len(kept) == 1 else None
            if axis == -2 and cut.rows is None:
                pending.append(_Cut(use.node.outputs[0], use.node, cut.columns))
            elif axis == -1 and cut.columns is None:
                pending.append(_Cut(use.node.outputs[0], cut.rows, use.node))


def _ends_alike(graph: Graph, rows: Node, columns: Node, sizes: Sizes) -> bool:
    stops = [sizes.content(slice_.inputs[2]) for slice_ in (rows, columns)]
    return starts_at_first(graph, columns) and stops[0] is not None and stops[0] == stops[1]
