"""Find what hides positions from each attention, or is added to its scores."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.attention.find import Scores, find_attention, read_scores
from graphpass.analysis.attention.types import OPERATORS, UNAMBIGUOUS, Attention, Mask
from graphpass.ir.graph import Graph, Node
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class MaskOperands:
    """Lists the masks of one attention.

    Attributes:
        node: The operator, or the Softmax.
        masks: Tensors that hide positions, or are added to scores.
        miss: Reason that its masks are not known.
    """

    node: Node
    masks: tuple[Mask, ...]
    miss: Miss | None = None


def find_mask_operands(model: Model) -> tuple[MaskOperands, ...]:
    """Describe each attention that `find_attention` finds, in order, for `Model.analysis`."""
    graph = model.graph
    return tuple(MaskOperands(block.node, *_masks(graph, block)) for block in model.analysis(find_attention))


def _masks(graph: Graph, attention: Attention) -> tuple[tuple[Mask, ...], Miss | None]:
    node = attention.node
    if not attention.is_fused:
        scores = read_scores(graph, node)
        return (tuple(scores.masks), None) if isinstance(scores, Scores) else ((), scores)
    ports, masks = OPERATORS[node.op], []
    if node.op not in UNAMBIGUOUS:
        return (), Miss(node, f"the positions that {node.op} sees are not computed ahead")
    for value in node.present(ports.masks):
        if value.rank is None or value.rank < 2:
            return (), Miss(node, f"its mask {value.name} is not a mask of positions")
        masks.append(Mask.of_operator(value))
    return tuple(masks), None
