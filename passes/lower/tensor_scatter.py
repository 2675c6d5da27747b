"""Lower TensorScatter."""

from __future__ import annotations

from graphpass.passes.lower.lowered_operator import LoweredOperator

_CACHE, _UPDATE, _START = range(3)


def lower_tensor_scatter(operator: LoweredOperator) -> None:
    """Lower TensorScatter, of opset 24, to ScatterElements.

    OpenVINO's frontend has no rule for the operator (2026.4.1). The capacity of the cache is unchanged.

    Shapes:
        cache ``[batch, .., capacity, ..]``, update ``[batch, .., length, ..]``, start ``[batch]``.

    Before:
        TensorScatter(cache, update, start)
    After:
        positions = start + Range(0, length), modulo capacity if circular; ScatterElements(cache, Expand(positions,
        Shape(update)), update)

    Raises:
        UnsupportedError: GP341, the rank of the cache is unknown.
    """
    assert operator.node is not None
    ends = [operator.value(_CACHE), operator.value(_UPDATE), *operator.node.outputs]
    rank = next((value.rank for value in ends if value is not None and value.rank is not None), None)
    if rank is None:
        raise operator.refusal("the rank of its cache is unknown")
    write, axis = operator.write, operator.attribute("axis", -2) % rank
    cache, update, start = (operator.read(port) for port in (_CACHE, _UPDATE, _START))
    positions = write.op("Range", 0, write.op("Squeeze", write.size(update, axis), axes=[0]), 1)
    if start is None:
        positions = write.op("Unsqueeze", positions, axes=[0])
    else:
        positions = write.op("Add", write.op("Unsqueeze", start, axes=[1]), positions)
    if operator.attribute("mode", "linear") == "circular":
        positions = write.op("Mod", positions, write.size(cache, axis))
    positions = write.op("Unsqueeze", positions, axes=[other for other in range(1, rank) if other != axis])
    indices = write.op("Broadcast", positions, write.op("ShapeOf", update))
    operator.replace(0, write.op("ScatterElementsUpdate", cache, indices, update, axis=axis))
