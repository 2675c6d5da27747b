"""Faults of single layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Rewriter


#: Too little for any model.
TINY = "0.01MB"


#: The parts of a model of equal layers that run.
RAN = ["embedding", "layer 0", "feed-forward 0", "head"]


def layer_of(model: Model, kind: str, layer: int) -> list[Node]:
    """Return the operators of a layer that exporters name after it."""
    return [node for node in model.graph.of_op(kind) if f"layers.{layer}/" in node.name]


def edited(model: Model, edit: Callable[[Rewriter, Model], None]) -> Model:
    copy = model.clone()
    rewriter = copy.rewriter()
    edit(rewriter, copy)
    assert rewriter.finish()
    return copy


def exchange_weights(rewriter: Rewriter, model: Model) -> None:
    """Two layers read each other's weights, all of them."""
    for one, other in zip(layer_of(model, "MatMul", 5), layer_of(model, "MatMul", 6), strict=True):
        sources = one.source(1), other.source(1)
        rewriter.redirect(one, 1, sources[1])
        rewriter.redirect(other, 1, sources[0])


def scale(product: str, rewriter: Rewriter, model: Model) -> None:
    """One layer contributes 0.1 % more."""
    node = next(node for node in layer_of(model, "MatMul", 6) if product in node.name)
    more = rewriter.constant(1.001, "f32", "more")
    rewriter.redirect_uses(node.outputs[0], rewriter.op("Multiply", node.outputs[0], more, name="scaled"))


def scale_feed_forward(rewriter: Rewriter, model: Model) -> None:
    scale("down_proj", rewriter, model)
