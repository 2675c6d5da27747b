"""Lower TensorScatter."""

from __future__ import annotations

from graphpass.passes.lower.call import Call

_CACHE, _UPDATE, _START = range(3)


def lower_tensor_scatter(call: Call) -> None:
    """Write TensorScatter, of opset 24, as ScatterElements.

    OpenVINO's frontend has no rule for the operator (2026.4.1). The cache keeps its capacity: it is written in place.

    Shapes:
        cache ``[batch, .., capacity, ..]``, update ``[batch, .., length, ..]``, start ``[batch]``.

    Before:
        TensorScatter(cache, update, start)
    After:
        positions = start + Range(0, length), modulo capacity if circular; ScatterElements(cache, Expand(positions,
        Shape(update)), update)

    Raises:
        UnsupportedError: GP341, the rank of the cache is not known.
    """
    assert call.node is not None
    ends = [call.value(_CACHE), call.value(_UPDATE), *call.node.outputs]
    rank = next((value.rank for value in ends if value is not None and value.rank is not None), None)
    if rank is None:
        raise call.refusal("the rank of its cache is not known")
    write, axis = call.write, call.attribute("axis", -2) % rank
    cache, update, start = (call.read(port) for port in (_CACHE, _UPDATE, _START))
    positions = write.op("Range", 0, write.op("Squeeze", write.size(update, axis), axes=[0]), 1)
    if start is None:
        positions = write.op("Unsqueeze", positions, axes=[0])
    else:
        positions = write.op("Add", write.op("Unsqueeze", start, axes=[1]), positions)
    if call.attribute("mode", "linear") == "circular":
        positions = write.op("Mod", positions, write.size(cache, axis))
    positions = write.op("Unsqueeze", positions, axes=[place for place in range(1, rank) if place != axis])
    indices = write.op("Broadcast", positions, write.op("ShapeOf", update))
    call.replace(0, write.op("ScatterElementsUpdate", cache, indices, update, axis=axis))
