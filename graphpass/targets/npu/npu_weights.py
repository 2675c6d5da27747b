"""Weights of 4 and 8 bits that NPUW widens to f16 itself, and the forms of them on which it fails.

Rules, of openvino: ``partitioning/patterns/dcoff.cpp`` finds the weights, ``util_xarch.cpp`` widens them. The findings
were measured on 2026.4.1 with NPUW on a CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.graph import Graph, Node, Value

__all__ = ["not_widened"]

#: How many numbers of 4 bits it widens at once; it knows no rest.
_STEP = 64


def not_widened(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Weights on which NPUW fails, and why.

    They are ``[rows, columns]`` or ``[rows, groups, size]``, multiplied by a scale for each row or group.
    """
    for weight in graph.of_op("Constant"):
        stored = weight.outputs[0]
        if stored.element_type not in {"i4", "i8", "u4"} or stored.rank not in {2, 3}:
            continue
        for convert in _readers(graph, stored, "Convert"):
            for multiply in _readers(graph, convert.outputs[0], "Multiply"):
                reason = _symmetric(graph, stored, multiply)
                if reason is not None:
                    yield weight, reason
            for subtract in _readers(graph, convert.outputs[0], "Subtract"):
                for multiply in _readers(graph, subtract.outputs[0], "Multiply"):
                    reason = _with_zeros(graph, stored, subtract, multiply)
                    if reason is not None:
                        yield weight, reason


def _symmetric(graph: Graph, stored: Value, multiply: Node) -> str | None:
    """Of what is multiplied alone: i8 where a product reads that directly, i4 behind a Reshape or Convert, too."""
    scale = multiply.inputs[1]
    if scale is None or not _is_stored(graph, scale) or stored.element_type == "u4":
        return None
    product = multiply.outputs[0]
    direct = _readers(graph, product, "MatMul", port=1) or _readers(graph, product, "Gather")
    if not direct:
        moved = _readers(graph, product, "Reshape", "Convert")
        gathered = product.element_type == "f16" and _is_gathered(graph, moved)
        if stored.element_type == "i8" or not moved or gathered:
            return None
    assert stored.shape is not None
    by_group = scale.shape == (*stored.shape[:-1], 1)
    if stored.element_type == "i4" and scale.element_type == "f32" and scale.shape == _shared(stored):
        return None  # one for each place in a group, which all groups share: left to the device
    if not by_group:
        return f"its scales are {list(scale.shape or ())}, not one for each row or group of {list(stored.shape)}"
    return _in_steps(stored)


def _with_zeros(graph: Graph, stored: Value, subtract: Node, multiply: Node) -> str | None:
    """Of what has zero points: u4, where they are u4 and all is f16, or where one in f32 is for all and all is f32."""
    if stored.element_type != "u4" or subtract.inputs[1] is None:
        return None
    behind = graph.producer(subtract.inputs[1])
    is_wide = behind.op == "Constant"
    zeros = subtract.inputs[1] if is_wide else behind.inputs[0] if behind.op == "Convert" else None
    if zeros is None or zeros.shape is None:
        return None
    is_one = all(size == 1 for size in zeros.shape)
    types = (zeros.element_type, multiply.outputs[0].element_type)
    if types != (("f32", "f32") if is_wide else ("u4", "f16")) or (is_wide and not is_one):
        return None
    ends = ("Reshape", "Convert") if is_one and not is_wide else ("Reshape",)
    if not _readers(graph, multiply.outputs[0], *ends):
        return None
    assert stored.shape is not None
    if not is_one and zeros.shape != (*stored.shape[:-1], 1):
        return f"its zero points are {list(zeros.shape)}, not one for each row or group of {list(stored.shape)}"
    return _in_steps(stored)


def _in_steps(stored: Value) -> str | None:
    assert stored.shape is not None
    size = stored.shape[-1]
    if stored.element_type == "i8" or not isinstance(size, int) or size % _STEP == 0:
        return None
    what = "groups" if stored.rank == 3 else "rows"
    return f"its {what} hold {size} numbers of 4 bits, not a multiple of {_STEP}: compress it in groups of 64 or 128"


def _shared(stored: Value) -> tuple[object, ...] | None:
    return (stored.shape[0], 1, stored.shape[2]) if stored.shape is not None and len(stored.shape) == 3 else None


def _is_stored(graph: Graph, value: Value) -> bool:
    """Whether ``value`` is a constant, perhaps moved, which runtimes fold."""
    node = graph.producer(value)
    while node.op in {"Convert", "Reshape", "Squeeze", "Unsqueeze"} and node.inputs[0] is not None:
        node = graph.producer(node.inputs[0])
    return node.op == "Constant"


def _is_gathered(graph: Graph, moved: list[Node]) -> bool:
    """Whether rows are taken of the weight: of one in f16 they are before they are widened."""
    while moved:
        if any(_readers(graph, node.outputs[0], "Gather") for node in moved):
            return True
        moved = [reader for node in moved for reader in _readers(graph, node.outputs[0], "Reshape", "Convert")]
    return False


def _readers(graph: Graph, value: Value, *ops: str, port: int = 0) -> list[Node]:
    return [use.node for use in graph.uses(value) if use.port == port and use.node.op in ops]
