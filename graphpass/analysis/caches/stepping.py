"""`Stepping`: what a model takes at one step, which its inputs' shapes do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.caches.conv_windows import shifted_in
from graphpass.analysis.caches.packed import flat_caches
from graphpass.ir.slices import starts_at_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.cache import Inventory
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.model import Model

__all__ = ["Stepping", "find_stepping", "weighs_new_tokens"]

#: Operators that lay a mask out and leave its values where they are.
_LAYOUT = frozenset({"Convert", "Identity", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class Stepping:
    """What a model takes at one step.

    Attributes:
        one_by_one: Behind a past it takes one token: the window of a convolution is rolled by one column, and what a
            step holds before its last token never enters it.
        masks_new_tokens: ``attention_mask`` stands for the step's own tokens, not for those of the past, too: it weighs
            their hidden states as it is.
        packed_windows: How many columns the windows of convolutions have that lie in flat caches.
    """

    one_by_one: bool = False
    masks_new_tokens: bool = False
    packed_windows: frozenset[int] = frozenset()


def find_stepping(model: Model, inventory: Inventory) -> Stepping:
    """What the graph of ``model``, with these caches, says of its steps."""
    graph = model.graph
    packed = [
        (state.sizes[-1], past)
        for flat in flat_caches(model, inventory).values()
        for state in flat.states
        for past in state.pasts
    ]
    linear = {cache.read for cache in inventory.of_kind("linear")}
    pasts = [node.outputs[0] for node in graph.of_op("Parameter", "ReadValue") if node.name in linear]
    pasts += [past for _, past in packed]
    rolls = [shifted_in(graph, past, in_loops=False) for past in pasts]
    return Stepping(
        one_by_one=any(node is not None and node.op == "Roll" for node in rolls),
        masks_new_tokens=bool(linear) and any(True for _ in weighs_new_tokens(graph)),
        packed_windows=frozenset(size for size, past in packed if shifted_in(graph, past)),
    )


def weighs_new_tokens(graph: Graph) -> Iterator[Node]:
    """The products of hidden states ``[batch, length, hidden]`` with the first columns of ``attention_mask``."""
    pending = [node.outputs[0] for node in graph.of_op("Parameter") if node.name == "attention_mask"]
    while pending:
        value = pending.pop()
        for use in graph.uses(value):
            node = use.node
            # Of a mask over past and new tokens the first ones are the past's; the last ones are the new tokens'.
            if use.port == 0 and (node.op in _LAYOUT or starts_at_first(graph, node)):
                pending += node.outputs
            elif node.op == "Multiply" and _has_one_number_a_token(value):
                other = node.inputs[1 - use.port]
                if other is not None and other.shape is not None and _is_hidden(other.shape):
                    yield node


def _has_one_number_a_token(mask: Value) -> bool:
    return mask.shape is not None and len(mask.shape) == 3 and mask.shape[-1] == 1


def _is_hidden(shape: tuple[int | str | None, ...]) -> bool:
    return len(shape) == 3 and isinstance(shape[-1], int) and shape[-1] > 1
