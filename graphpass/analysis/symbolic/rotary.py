"""Rules for operators that apply rotary embedding to query and key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.places import digits
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node, Value


def rotary_ports(node: Node) -> tuple[int, int, int] | None:
    """Return the ports of positions, cosines and sines of a rotary operator; ``None`` for others.

    Sources: docs/ContribOperators.md of ONNX Runtime for com.microsoft; onnx.defs for RotaryEmbedding-23.
    """
    if node.op == "GroupQueryAttention":
        return 9, 7, 8
    if node.op != "RotaryEmbedding":
        return None
    return (3, 1, 2) if getattr(node.native, "domain", None) == "" else (1, 2, 3)


def rotated(
    element: Element,
    tables: Sequence[int],
    interleaved: bool,
    at: tuple[Expr, ...],
    channel: Expr,
    read: Callable[[Expr], Steps],
) -> Steps:
    """Return an element of the rotated tensor.

    Args:
        element: The element of the output.
        tables: Ports of cosines and sines, ``[..., rotated channels / 2]``.
        interleaved: Whether pairs are adjacent channels; otherwise they are half the rotated channels apart.
        at: Index of the row in the tables.
        channel: Channel of the element in its head.
        read: Requests the source's element at a channel.

    Yields:
        Requests for elements of the source and of the tables.

    Raises:
        UnknownError: The number of channels of the tables is unknown.
    """
    half = element.shape(tables[0])[-1]
    count = half.as_number
    if not isinstance(count, int):
        raise UnknownError("the number of channels of its tables is not known")
    own = yield from read(channel)

    def factor(port: int, column: Expr) -> tuple[Value, tuple[Expr, ...]]:
        return element.node.source(port), (*at, column)

    if interleaved:
        column, odd = digits(channel, number(2))
        base = ex.multiply(number(2), column)
        first, second = (yield from read(base)), (yield from read(ex.add(base, ONE)))
        cos, sin = (yield factor(tables[0], column)), (yield factor(tables[1], column))
        lower = ex.subtract(ex.multiply(first, cos), ex.multiply(second, sin))
        upper = ex.add(ex.multiply(second, cos), ex.multiply(first, sin))
        turned = ex.choose(ex.less(odd, ONE), lower, upper)
    else:
        below = ex.less(channel, half)
        after, before = ex.add(channel, half), ex.subtract(channel, half)
        cos, sin = (yield factor(tables[0], channel)), (yield factor(tables[1], channel))
        lower = ex.subtract(ex.multiply(own, cos), ex.multiply((yield from read(after)), sin))
        cos, sin = (yield factor(tables[0], before)), (yield factor(tables[1], before))
        upper = ex.add(ex.multiply(own, cos), ex.multiply((yield from read(before)), sin))
        turned = ex.choose(below, lower, upper)
    return ex.choose(ex.less(channel, number(2 * count)), turned, own)


def rotary(element: Element) -> Steps:
    """Return an element of RotaryEmbedding.

    Inputs are (input, positions, cos, sin) in com.microsoft, and (input, cos, sin, positions) in ONNX 23.

    Yields:
        Requests for elements of the inputs.

    Raises:
        UnknownError: The number or size of heads is unknown, or tables have columns for other channels.
    """
    node, own = element.node, element.index
    attributes = native_attributes(node)
    at_port, *tables = rotary_ports(node) or (0, 0, 0)
    is_onnx, sizes = at_port == 3, element.shape(0)
    interleaved = bool(attributes.get("interleaved", 0))
    rotary, rotated_channels = element.shape(tables[0])[-1].as_number, attributes.get("rotary_embedding_dim", 0)
    if rotated_channels and isinstance(rotary, int) and rotated_channels != 2 * rotary:
        # ONNX Runtime accepts tables of half the head size, but reads rows of half the attribute.
        raise UnknownError("its tables have columns for another number of channels")
    if len(own) == 3:
        count = attributes.get("num_heads", 0)
        size = sizes[2].as_number
        if (
            not isinstance(size, int)
            or not isinstance(rotary, int)
            or (count == 0 and not is_onnx and size % (2 * rotary))
        ):
            raise UnknownError("number or size of its heads is not known")
        width = number(size // count if count else 2 * rotary)
        row, token = own[0], own[1]
        head, channel = digits(own[2], width)
        merged = ex.multiply(head, width)

        def read(channel: Expr) -> Steps:
            return (yield node.source(0), (row, token, ex.add(merged, channel)))

    else:
        row, head, token, channel = own

        def read(channel: Expr) -> Steps:
            return (yield node.source(0), (row, head, token, channel))

    at: tuple[Expr, ...] = row, token
    if node.input(at_port) is not None:
        ids = element.shape(at_port)
        # A tensor of one element is the first new position.
        is_first = len(ids) == 1
        read_at = yield node.source(at_port), (ZERO,) if is_first else (ZERO if ids[0] is ONE else row, token)
        at = (ex.add(read_at, token) if is_first else read_at,)
    expr = yield from rotated(element, tables, interleaved, at, channel, read)
    scale = float(attributes.get("scale", 1.0))
    return ex.multiply(number(scale), expr) if scale != 1 else expr
