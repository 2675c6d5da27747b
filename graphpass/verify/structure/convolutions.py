"""Symbolic definitions of convolutions, and of CausalConvWithState of ONNX and com.microsoft."""

from __future__ import annotations

from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.open_sizes import paddings
from graphpass.analysis.symbolic.places import digits, index_along
from graphpass.dialects.attributes import native_attributes
from graphpass.verify.structure.activations import swish
from graphpass.verify.structure.tensors import closed, definitions_of


def _convolution(element: Element) -> Steps:
    """Return an element of a convolution, as a sum over channels and kernel.

    Raises:
        UnknownError: The padding is automatic, or the number of output channels is unknown.
    """
    node, attributes = element.node, native_attributes(element.node)
    data, weight = element.shape(0), element.shape(1)
    count = len(data) - 2
    groups_axis = len(weight) - count - 2
    pads = paddings(attributes, count)
    if pads is None:
        raise UnknownError("expected explicit padding, got auto_pad")
    strides, dilations = (list(attributes.get(name) or [1] * count) for name in ("strides", "dilations"))
    row, output, *places = element.index
    inputs = weight[groups_axis + 1]
    channel = index_along("channel", inputs)
    kernel = [index_along(f"k{axis}", size) for axis, size in enumerate(weight[-count:])]
    own: tuple[Expr, ...]
    if groups_axis:
        group, within = digits(output, weight[1])
        own = (group, within, channel)
    else:
        groups = int(attributes.get("group", 1))
        outputs = weight[0].as_number
        if not isinstance(outputs, int):
            raise UnknownError("the number of output channels is not known")
        group, own = ex.floor_divide(output, number(outputs // groups)), (output, channel)
    inside, index = ex.TRUE, list[Expr]()
    for axis, place in enumerate(places):
        step = ex.multiply(number(int(dilations[axis])), kernel[axis])
        at = ex.subtract(ex.add(ex.multiply(number(int(strides[axis])), place), step), number(pads[axis]))
        if pads[axis] or pads[count + axis]:
            inside = ex.conjunction(inside, ex.at_most(ZERO, at), ex.less(at, data[2 + axis]))
        index.append(at)
    source = ex.add(ex.multiply(group, inputs), channel)
    read = yield node.source(), (row, source, *index)
    body = ex.multiply((yield node.source(1), (*own, *kernel)), ex.choose(inside, read, ZERO))
    bounds = [index for index in (channel, *kernel) if index is not ZERO]
    result = definitions_of(element).sum(body, *bounds) if bounds else body
    if node.input(2) is None:
        return result
    return ex.add(result, (yield node.source(2), (output,)))


@closed
def _causal(element: Element) -> Steps:
    """Return an element of CausalConvWithState: the convolution (output 0) or the next state (output 1).

    Raises:
        UnknownError: An attribute has no definition.
    """
    node, attributes = element.node, native_attributes(element.node)
    if attributes.get("ndim", 1) != 1 or attributes.get("state_window", 0):
        raise UnknownError("ndim > 1 and state_window have no definition")
    is_last = bool(attributes.get("channels_last", 0))
    row, *place = element.index
    channel, token = reversed(place) if is_last else place
    kernel, dilation = element.shape(1)[2], int(attributes.get("dilation", 1))
    state = ex.multiply(ex.subtract(kernel, ONE), number(dilation))
    length = element.shape(0)[1 if is_last else 2]

    def column(at: Expr) -> Steps:
        order = (lambda position: (row, position, channel)) if is_last else (lambda position: (row, channel, position))
        new = yield node.source(), order(ex.subtract(at, state))
        past: Expr = ZERO
        if node.input(3) is not None:
            past = yield node.source(3), order(at)
        return ex.choose(ex.less(at, state), past, new)

    if element.value.port:
        return (yield from column(ex.add(length, token)))
    bound = index_along("k", kernel)
    read = yield from column(ex.add(token, ex.multiply(number(dilation), bound)))
    body = ex.multiply((yield node.source(1), (channel, ZERO, bound)), read)
    terms = [body if bound is ZERO else definitions_of(element).sum(body, bound)]
    if node.input(2) is not None:
        terms.append((yield node.source(2), (channel,)))
    result = reduce(ex.add, terms)
    activation = str(attributes.get("activation", "none"))
    if activation not in {"none", "silu", "swish"}:
        raise UnknownError(f"no definition for activation {activation}")
    return result if activation == "none" else swish(result)


RULES: dict[str, Rule] = {
    "CausalConvWithState": _causal,
    **dict.fromkeys(("Conv", "Convolution", "GroupConvolution"), closed(_convolution, by_part=True)),
}
