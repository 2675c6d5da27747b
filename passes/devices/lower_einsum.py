"""The pass `lower-einsum`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphpass.engine.passes import Done, Pass
from graphpass.ir.einsum import EinsumProduct, axis_order
from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.ir.writer import Handle, Operand, Writer


@dataclass(frozen=True)
class LowerEinsum(Pass[Model]):
    """Lower Einsum of two operands to MatMul.

    Qualcomm's HTP supports few equations of Einsum (``einsum_op_builder.cc`` of ONNX Runtime's QNN provider), but
    MatMul with up to three batch axes.

    Shapes:
        left, right of any rank. A Reshape merges at most one axis of unknown size for each operand.

    Before:
        Einsum(left [b, c, l, h, n], right [b, c, s, h, n], bclhn,bcshn->bclsh)
    After:
        MatMul(Transpose(left) [b, c, h, l, n], Transpose(right) [b, c, h, n, s]) -> Transpose(.) [b, c, l, s, h]
    """

    name = "lower-einsum"

    def run(self, model: Model) -> Done:
        rewriter, count = model.rewriter(), 0
        for node in rewriter.graph.of_op("Einsum"):
            product = EinsumProduct.of(node)
            made = None if product is None else _write(rewriter.under(node.name), node, product)
            if made is not None:
                rewriter.replace(node.outputs[0], made)
                count += 1
        rewriter.finish()
        return Done({"products": count} if count else {})


def _write(write: Writer, node: Node, product: EinsumProduct) -> Handle | None:
    batch, summed, rows, columns = product.batch, product.summed, product.own(0), product.own(1)
    groups = ((rows, summed), (summed, columns))
    joined = [_sizes(product, len(batch), group) for group in groups]
    # Single axes require no Reshape, and may be dynamic.
    split = _sizes(product, len(batch), (*rows, *columns)) if len(rows) != 1 or len(columns) != 1 else []
    if split is None or any(sizes is None and _is_joined(group) for sizes, group in zip(joined, groups, strict=True)):
        return None
    operands: list[Operand] = []
    for port, (group, sizes) in enumerate(zip(groups, joined, strict=True)):
        axes = axis_order(product.operands[port], batch + "".join(group))
        moved: Operand = node.source(port)
        if axes != sorted(axes):
            moved = write.op("Transpose", moved, order=axes)
        if _is_joined(group) and sizes is not None:
            moved = write.op("Reshape", moved, sizes, special_zero=True, label="joined")
        operands.append(moved)
    made = write.op("MatMul", *operands, label="product")
    if split:
        made = write.op("Reshape", made, split, special_zero=True, label="split")
    axes = axis_order(batch + rows + columns, product.result)
    return made if axes == sorted(axes) else write.op("Transpose", made, order=axes)


def _is_joined(group: Sequence[str]) -> bool:
    return any(len(names) != 1 for names in group)


def _sizes(product: EinsumProduct, batch: int, groups: Sequence[str]) -> list[int] | None:
    """Return the target of a Reshape after batch axes; ``None`` if two sizes are unknown."""
    sizes = [product.joined(group) for group in groups]
    if sizes.count(None) > 1:
        return None
    return [0] * batch + [-1 if size is None else size for size in sizes]
