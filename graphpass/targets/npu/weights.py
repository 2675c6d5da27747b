"""Detection of weights of 4 and 8 bits that NPUW fails to convert to f16.

Sources, of OpenVINO: ``partitioning/patterns/dcoff.cpp`` (matcher) and ``util_xarch.cpp`` (conversion). Measured on
2026.4.1 with NPUW on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss

#: Elements of 4 bits that NPUW converts at once; the size of a row or group must be a multiple.
_STEP = 64

_MOVES = frozenset({"Convert", "Reshape", "Squeeze", "Unsqueeze"})

#: Operator and type of scales that NPUW does not match, so that the device dequantizes.
_WIDENED = ("Convert", "f32")


def not_widened(graph: Graph) -> Iterator[Miss]:
    """Yield a miss for each weight on which NPUW fails.

    Weights are ``[rows, columns]`` or ``[rows, groups, size]``, with a scale for each row or group.
    """
    for weight in graph.of_op("Constant"):
        stored = weight.outputs[0]
        if stored.element_type not in {"i4", "i8", "u4"} or stored.rank not in {2, 3}:
            continue
        for convert in _users(graph, stored, "Convert"):
            wide = convert.outputs[0]
            reasons = [_symmetric(graph, stored, multiply) for multiply in _users(graph, wide, "Multiply")]
            for subtract in _users(graph, wide, "Subtract"):
                products = _users(graph, subtract.outputs[0], "Multiply")
                reasons += [_with_zeros(graph, stored, subtract, multiply) for multiply in products]
            yield from (Miss(weight, reason) for reason in reasons if reason is not None)


def _symmetric(graph: Graph, stored: Value, multiply: Node) -> str | None:
    """Check weights without zero points: i8 read by a product, i4 also through layout operators.

    Returns:
        The reason why NPUW fails on them; ``None`` if it does not, or does not match them.
    """
    scale = multiply.source(1)
    # Runtimes fold layout operators on constants.
    is_stored = graph.producer(graph.look_through(scale, _MOVES)).op == "Constant"
    if not is_stored or stored.element_type == "u4" or (graph.producer(scale).op, scale.element_type) == _WIDENED:
        return None
    product = multiply.outputs[0]
    direct = _users(graph, product, "MatMul", port=1) or _users(graph, product, "Gather")
    if not direct:
        moved = _users(graph, product, "Reshape", "Convert")
        gathered = product.element_type == "f16" and _is_gathered(graph, moved)
        if stored.element_type == "i8" or not moved or gathered:
            return None
    assert stored.shape is not None
    shared = (stored.shape[0], 1, stored.shape[2]) if len(stored.shape) == 3 else None
    if stored.element_type == "i4" and scale.element_type == "f32" and scale.shape == shared:
        return None  # a scale for each index in a group, shared by all groups: converted by the device
    if scale.shape != (*stored.shape[:-1], 1):
        return f"its scales are {list(scale.shape or ())}, not one for each row or group of {list(stored.shape)}"
    reason = _in_steps(stored)
    is_half = stored.element_type == "i4" and product.element_type == "f16"
    return f"{reason}, or run widen-dequantization" if reason is not None and is_half else reason


def _with_zeros(graph: Graph, stored: Value, subtract: Node, multiply: Node) -> str | None:
    """Check u4 weights with zero points: u4 in f16, or one f32 for all.

    Returns:
        The reason why NPUW fails on them; ``None`` if it does not, or does not match them.
    """
    if stored.element_type != "u4":
        return None
    producer = graph.producer(subtract.source(1))
    is_wide = producer.op == "Constant"
    zeros = subtract.source(1) if is_wide else producer.source() if producer.op == "Convert" else None
    if zeros is None or zeros.shape is None:
        return None
    is_one = all(size == 1 for size in zeros.shape)
    types = (zeros.element_type, multiply.outputs[0].element_type)
    if types != (("f32", "f32") if is_wide else ("u4", "f16")) or (is_wide and not is_one):
        return None
    ends = ("Reshape", "Convert") if is_one and not is_wide else ("Reshape",)
    if not _users(graph, multiply.outputs[0], *ends):
        return None
    assert stored.shape is not None
    if not is_one and zeros.shape != (*stored.shape[:-1], 1):
        return f"its zero points are {list(zeros.shape)}, not one for each row or group of {list(stored.shape)}"
    reason = _in_steps(stored)
    return reason if reason is None or is_wide else f"{reason}, or run widen-dequantization"


def _in_steps(stored: Value) -> str | None:
    assert stored.shape is not None
    size = stored.shape[-1]
    if stored.element_type == "i8" or not isinstance(size, int) or size % _STEP == 0:
        return None
    parts = "groups" if stored.rank == 3 else "rows"
    return f"its {parts} have {size} elements of 4 bits, not a multiple of {_STEP}: compress it in groups of 64 or 128"


def _is_gathered(graph: Graph, moved: list[Node]) -> bool:
    starts = [node.outputs[0] for node in moved]
    uses = graph.forward(starts, lambda use: use.node.outputs if use.node.op in {"Reshape", "Convert"} else ())
    return any(use.node.op == "Gather" and use.port == 0 for use in uses)


def _users(graph: Graph, value: Value, *ops: str, port: int = 0) -> list[Node]:
    return [use.node for use in graph.uses(value) if use.port == port and use.node.op in ops]
