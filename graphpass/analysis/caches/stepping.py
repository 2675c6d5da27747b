"""Find what a model takes at one step, which its inputs' shapes do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.caches.conv_windows import shifted_in
from graphpass.analysis.caches.packed import flat_caches
from graphpass.ir.constants import starts_at_first
from graphpass.ir.operators import KEEPS_ORDER, SOURCES
from graphpass.ir.values import fixed_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.cache import Inventory
    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["Stepping", "find_stepping", "weighs_new_tokens"]


@dataclass(frozen=True, slots=True)
class Stepping:
    """What a model takes at one step.

    Attributes:
        one_by_one: After a past it takes one token: the window of a convolution is rolled by one column, and what a
            step holds before its last token never enters it.
        masks_new_tokens: ``attention_mask`` stands for the step's own tokens, not for those of the past, too: it weighs
            their hidden states as it is.
        packed_windows: Columns of the windows of convolutions that lie in flat caches.
    """

    one_by_one: bool = False
    masks_new_tokens: bool = False
    packed_windows: frozenset[int] = frozenset()


def find_stepping(model: Model, inventory: Inventory) -> Stepping:
    """Return what the graph of ``model``, with the caches of ``inventory``, takes at one step."""
    graph = model.graph
    packed = [
        (state.sizes[-1], past)
        for flat in flat_caches(model, inventory).values()
        for state in flat.states
        for past in state.pasts
    ]
    linear = {cache.read for cache in inventory.of_kind("linear")}
    pasts = [node.outputs[0] for node in graph.of_op(*SOURCES) if node.name in linear]
    pasts += [past for _, past in packed]
    rolls = [shifted_in(graph, past, in_loops=False) for past in pasts]
    return Stepping(
        one_by_one=any(node is not None and node.op == "Roll" for node in rolls),
        masks_new_tokens=bool(linear) and any(True for _ in weighs_new_tokens(graph)),
        packed_windows=frozenset(size for size, past in packed if shifted_in(graph, past)),
    )


def weighs_new_tokens(graph: Graph) -> Iterator[Node]:
    """Yield the products of hidden states ``[batch, length, hidden]`` with the first columns of ``attention_mask``."""
    masks = [node.outputs[0] for node in graph.of_op("Parameter") if node.name == "attention_mask"]

    def first_columns(node: Node) -> bool:
        # Of a mask over past and new tokens the first ones are the past's; the last ones are the new tokens'.
        return node.op in KEEPS_ORDER or starts_at_first(graph, node)

    for use in graph.forward(masks, lambda use: use.node.outputs if use.port == 0 and first_columns(use.node) else ()):
        if use.node.op == "Multiply":
            mask, other = use.node.source(use.port), use.node.source(1 - use.port)
            hidden = fixed_size(other, -1) if other.rank == 3 else None
            if mask.rank == 3 and fixed_size(mask, -1) == 1 and hidden is not None and hidden > 1:
                yield use.node
