"""Sizes of the outputs of single operators, assumed and proven."""

import pytest

from graphpass.analysis.symbolic.equal_sizes import dimension_name, dimensions, offset
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.testing import parse_model

OPERANDS = """%x = Parameter : f32[b, n, 6]
%p = Parameter : f32[b, p, 6]
%one = Parameter : f32[b, 1, 6]
%w = Parameter : f32[6, 4]
%v = Parameter : f32[h, 4]
%k = Parameter : i64[b, m]
%s = ShapeOf(%x)
%l = Gather(%s, [1]) {axis=0}
"""

#: Operators, and the sizes of their results, where ``?`` is a new dimension.
SIZES = {
    "%y = Add(%x, %one)": "b, n, 6",
    "%y = MatMul(%x, %w)": "b, n, 4",
    "%t = Transpose(%p) {order=[0, 2, 1]}\n%y = MatMul(%x, %t)": "b, n, p",
    # Products prove that inner sizes are equal, and Concats that the others are.
    "%t = MatMul(%x, %v)\n%u = Transpose(%v) {order=[1, 0]}\n%y = MatMul(%t, %u)": "b, n, 6",
    "%y = Concat(%v, %w) {axis=1}": "6, 8",
    "%y = Concat(%p, %x) {axis=1}": "b, n+p, 6",
    "%y = Concat(%p, %one, %x) {axis=1}": "b, n+p+1, 6",
    "%y = Gather(%w, %k) {axis=0}": "b, m, 4",
    "%j = Convert(%one) {to=i64}\n%y = GatherElements(%x, %j) {axis=1}": "b, 1, 6",
    "%y = Reshape(%x, [0, 0, 3, 2])": "b, n, 3, 2",
    "%y = Reshape(%x, [0, -1, 2])": "b, 3n, 2",
    "%t = Concat(%l, [-1]) {axis=0}\n%y = Reshape(%x, %t)": "n, 6b",
    "%y = Reshape(%x, [-1, 6])": "?, 6",
    # The product of two lengths is not linear, but the other size is known.
    "%t = Transpose(%p) {order=[0, 2, 1]}\n%u = MatMul(%x, %t)\n%k2 = ShapeOf(%p)\n%e = Gather(%k2, [1]) {axis=0}\n"
    "%r = Gather(%s, [0]) {axis=0}\n%m = Multiply(%r, %l)\n%n = Concat(%m, %e) {axis=0}\n%y = Reshape(%u, %n)": "?, p",
    "%t = Concat([1], %l, [6]) {axis=0}\n%y = Broadcast(%one, %t)": "b, n, 6",
    "%z = Squeeze(%l) {axes=[0]}\n%y = Range(0, %z, 1)": "n",
    "%z = Squeeze(%l) {axes=[0]}\n%y = Range(2, %z, 1)": "?",
    "%y = ReduceSum(%x) {axes=[1], keep=true}": "b, 1, 6",
    "%y = ReduceSum(%x) {axes=[1]}": "b, 6",
    "%y = Tile(%x, [1, 2, 1])": "b, 2n, 6",
    "%y = Transpose(%x) {order=[2, 0, 1]}": "6, b, n",
    "%y = Unsqueeze(%x) {axes=[1]}": "b, 1, n, 6",
    "%y, %rest = TopK(%x, [2]) {axis=2}": "b, n, 2",
    "%y, %rest = VariadicSplit(%x, [2, 4]) {axis=2}": "b, n, 2",
    "%y = Pad(%x, [0, 1, 0], [0, 2, 0])": "b, n+3, 6",
    "%y = onnx.Flatten(%one) {axis=2}": "b, 6",
    "%y = onnx.ConstantOfShape(%s)": "b, n, 6",
    "%y = ShapeOf(%w)": "2",
    "%y = Slice(%x, [0], [2]) {axes=[2]}": "b, n, 2",
    "%y = Slice(%x, [0], [6], [4]) {axes=[2]}": "b, n, 2",
    "%y = Slice(%x, [5], [-7], [-2]) {axes=[2]}": "b, n, 3",
    "%y = Slice(%x, [0], [9223372036854775807]) {axes=[1]}": "b, n, 6",
}

#: Operators whose sizes are assumed, and what is proven of them.
ASSUMED = {
    "%y = Slice(%x, [1], [9223372036854775807]) {axes=[1]}": ("b, n-1, 6", "b, ?, 6"),
    "%y = Slice(%x, [-2], [9223372036854775807]) {axes=[1]}": ("b, 2, 6", "b, ?, 6"),
    "%y = Slice(%p, [0], %l) {axes=[1]}": ("b, n, 6", "b, ?, 6"),
    "%sum = Add(%x, %p)\n%y = Concat(%sum, %x, %p) {axis=1}": ("b, 3n, 6", "b, ?+n+p, 6"),
}


def text_of(sizes):
    def of(size):
        parts = [(dimension_name(own), factor) for own, factor in dimensions(size)]
        terms = sorted(f"{'' if many == 1 else many}{name if isinstance(name, str) else '?'}" for name, many in parts)
        rest = offset(size)
        return "+".join([*terms, *([str(rest)] if rest or not terms else [])]).replace("+-", "-")

    return None if sizes is None else ", ".join(map(of, sizes))


def read(text):
    """Return the assumed and the proven sizes of the result."""
    model = parse_model(f"{OPERANDS}{text}\nResult(%y) {{name=y}}")
    (result,) = model.graph.of_op("Result")
    known = {
        (node.index, axis): name
        for node in model.graph.of_op("Parameter")
        for axis, name in enumerate(node.outputs[0].shape)
        if isinstance(name, str)
    }
    return tuple(text_of(own.shape(result.source())) for own in (infer_sizes(model), Sizes(model.graph, known)))


@pytest.mark.parametrize("text", SIZES)
def test_sizes_of_operators(text):
    assert read(text) == (SIZES[text], SIZES[text])


@pytest.mark.parametrize("text", ASSUMED)
def test_assumptions_prove_nothing(text):
    assumed, proven = ASSUMED[text]
    found = read(text)
    assert found[0].replace("p", "n") == assumed
    assert found[1] == proven


#: Sizes of OpenVINO's operators that are assumed to be constant, by axis of the result.
CONSTANT = {
    # Axis 1 of the result is the vector's, which is not aligned to the last one.
    "%t = Concat([2], %l, [6]) {axis=0}\n%n = Squeeze(%l) {axes=[0]}\n%r = Range(0, %n, 1)\n"
    "%y = Broadcast(%r, %t, [1]) {mode=explicit}": {0: 2, 2: 6},
    # Entries are whole along axes other than that of the indices.
    "%u = Reshape(%x, [0, 0, 3, 2])\n%i = Convert(%u) {to=i64}\n%y = ScatterElementsUpdate(%d, %i, %u) {axis=1}": {
        2: 3,
        3: 2,
    },
    # A mask has a column for each key.
    "%q = Reshape(%x, [0, 0, 3, 2])\n%m = Constant : f32[1, 1, 1, 7]\n%y = Relu(%d)\n"
    "%a = ScaledDotProductAttention(%q, %d, %d, %m)\nResult(%a) {name=a}": {2: 7},
}


@pytest.mark.parametrize("text", CONSTANT)
def test_sizes_that_are_assumed_to_be_constant(text):
    model = parse_model(f"%d = Parameter : f32[d, e, f, g]\n{OPERANDS}{text}\nResult(%y) {{name=y}}", "openvino")
    found = infer_sizes(model).shape(model.graph.writes["y"].source())
    assert {axis: size.as_number for axis, size in enumerate(found) if size.op == "number"} == CONSTANT[text]
