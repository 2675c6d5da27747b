"""Features of images that layers add to hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import VISUAL_FEATURES, VISUAL_MASK
from graphpass.ir.operators import KEEPS_ORDER


@dataclass(frozen=True, slots=True)
class AddedFeatures:
    """A sum that adds features to the hidden states of images.

    Attributes:
        node: The sum.
        hidden: The hidden states ``[batch, length, hidden]``.
        features: The features of one level, ``[tokens, hidden]``.
        mask: The input ``visual_pos_masks``, ``[batch, length]``.
    """

    node: Node
    hidden: Value
    features: Value
    mask: Value


_MASK = look_through(var("mask"), KEEPS_ORDER)
_NUMBER = op.Maximum(op.Add(op.CumSum(_MASK, ..., name="count"), -1), 0)
_ROWS = look_through(op.Gather(var("features"), _NUMBER, ..., name="rows"), KEEPS_ORDER)
_ADDED = op.Add(var("hidden"), op.Multiply(var("row") & _ROWS, var("weight") & _MASK))


def added_features(graph: Graph) -> Iterator[AddedFeatures]:
    """Yield the sums that gather the features of each token of an image.

    Args:
        graph: A graph; its features are the input ``deepstack_visual_embeds``.
    """
    features, mask = (graph.parameters.get(name) for name in (VISUAL_FEATURES, VISUAL_MASK))
    for node in graph.of_op("Add") if features is not None and mask is not None else ():
        match = _ADDED.match(graph, node)
        if not isinstance(match, Match) or not _are_rows(match):
            continue
        if graph.look_through(match["mask"], KEEPS_ORDER) != mask:
            continue
        level = graph.producer(match["features"])
        if level.op == "Gather" and level.source() == features and level.attributes.get("axis", 0) == 0:
            yield AddedFeatures(node, match["hidden"], match["features"], mask)


def _are_rows(match: Match) -> bool:
    """Return whether each position has a row of features and a weight."""
    count, rows = match.nodes["count"], match.nodes["rows"]
    is_number = (
        count.source().rank == 1 and not count.attributes.get("exclusive") and not count.attributes.get("reverse")
    )
    sizes = [(match[name].shape or (None,))[-1] for name in ("hidden", "features", "row", "weight")]
    fits = isinstance(sizes[0], int) and sizes == [sizes[0]] * 3 + [1] and match["hidden"].rank == 3
    return is_number and fits and rows.attributes.get("axis", 0) == 0
