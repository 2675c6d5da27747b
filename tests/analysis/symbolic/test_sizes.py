"""Sizes that are told are those that ONNX Runtime sees, and carried tensors are told apart by them alone."""

from __future__ import annotations

import itertools

import numpy
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as some
from onnx import TensorProto, helper
from support.graph_builder import GraphBuilder, builder_with_hidden_states

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.symbolic.equal_sizes import (
    EqualSizes,
    as_dimension,
    dimension,
    dimension_name,
    dimensions,
    is_linear,
    is_negative,
    offset,
)
from graphpass.analysis.symbolic.expressions import ZERO, Expr, add, multiply, negative, number, subtract
from graphpass.analysis.symbolic.sizes import Sizes, infer_exact_sizes, infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.testing import parse_model

#: Two meanings of the symbols, all different, so that no size is right by chance.
MEANINGS = ({"B": 11, "N": 5, "P": 7}, {"B": 6, "N": 13, "P": 9})


def value_of(size: Expr, meaning: dict[object, int]) -> int | None:
    """The number that ``size`` is; ``None`` where it is made of something else than sizes of inputs."""
    assert is_linear(size)
    terms = [(dimension_name(own), factor) for own, factor in dimensions(size)]
    if any(name not in meaning for name, _ in terms):
        return None
    return offset(size) + sum(meaning[name] * factor for name, factor in terms)


class TestSizes:
    def test_sums_of_dimensions_are_normalized(self):
        batch, length = dimension("B"), dimension("N")
        assert subtract(add(batch, length), batch) is length
        assert subtract(multiply(add(batch, number(2)), number(3)), number(6)) is multiply(batch, number(3))
        assert as_dimension(add(batch, length)) is None
        assert is_negative(negative(batch))
        assert not is_negative(subtract(batch, length))
        assert not is_negative(ZERO)

    def test_sizes_of_operands_are_the_same(self):
        classes = EqualSizes()
        a, b, c = map(dimension, "abc")
        classes.join(a, b)
        classes.join(c, b)
        assert len({classes.resolve(size) for size in (a, b, c)}) == 1
        classes.join(number(4), a)
        assert classes.resolve(add(b, c)) is number(8)
        classes.join(add(a, b), number(3))
        assert classes.resolve(a) is number(4)

    def test_equal_sums_resolve_to_one(self):
        classes = EqualSizes()
        a, b, c, d = map(dimension, "abcd")
        classes.join(a, add(b, c))
        assert classes.resolve(add(a, d)) is add(b, c, d)
        classes.join(add(b, d), add(c, d))
        assert classes.resolve(a) is classes.resolve(multiply(b, number(2)))

    def test_long_chains_are_followed_without_recursion(self):
        classes, sizes = EqualSizes(), [dimension(number) for number in range(5000)]
        for one, other in itertools.pairwise(sizes):
            classes.join(one, other)
        assert classes.resolve(sizes[0]) is sizes[-1]


@some.composite
def programs(draw):
    """A model of a few random operators that is legal in both meanings."""
    build = GraphBuilder()
    seen = {
        build.input(name, ["B", symbol, 4]): tuple(
            numpy.empty((meaning["B"], meaning[symbol], 4)) for meaning in MEANINGS
        )
        for name, symbol in (("x", "N"), ("p", "P"))
    }
    seen[build.op("Identity", "x")] = seen["x"]
    for _ in range(draw(some.integers(1, 7))):
        name = draw(some.sampled_from(sorted(seen)))
        operator = draw(some.sampled_from(OPERATORS))
        made = operator(draw, build, seen, name)
        if made is not None:
            seen[made[0]] = made[1]
    for place, name in enumerate(sorted(set(seen) - {"x", "p"})):
        build.output(name, f"out_{place}", [None] * seen[name][0].ndim)
    return build.model()


def an_axis(draw, arrays):
    return draw(some.integers(0, arrays[0].ndim - 1))


def transpose(draw, build, seen, name):
    order = draw(some.permutations(range(seen[name][0].ndim)))
    return build.op("Transpose", name, perm=list(order)), tuple(array.transpose(order) for array in seen[name])


def unsqueeze(draw, build, seen, name):
    axis = an_axis(draw, seen[name])
    made = build.op("Unsqueeze", name, build.ints(axis))
    return made, tuple(numpy.expand_dims(array, axis) for array in seen[name])


def cut(draw, build, seen, name):
    axis = an_axis(draw, seen[name])
    if min(array.shape[axis] for array in seen[name]) < 4:
        return None
    start, stop = draw(some.sampled_from([(0, 2), (1, 2**40), (-3, 2**40), (0, -1), (1, -2)]))
    made = build.op("Slice", name, build.ints(start), build.ints(stop), build.ints(axis))
    return made, tuple(array.take(range(array.shape[axis])[start:stop], axis) for array in seen[name])


def cut_to_the_length_of_p(draw, build, seen, name):
    axis = an_axis(draw, seen[name])
    lengths = [meaning["P"] for meaning in MEANINGS]
    if any(array.shape[axis] < length for array, length in zip(seen[name], lengths, strict=True)):
        return None
    start = build.op("Neg", build.op("Gather", build.op("Shape", "p"), build.ints(1)))
    made = build.op("Slice", name, start, build.ints(2**40), build.ints(axis))
    return made, tuple(array.take(range(length), axis) for array, length in zip(seen[name], lengths, strict=True))


def combine(kind):
    def operator(draw, build, seen, name):
        other = draw(some.sampled_from(sorted(seen)))
        axis = an_axis(draw, seen[name])
        pairs = list(zip(seen[name], seen[other], strict=True))
        if kind == "Add" and all(one.shape == two.shape for one, two in pairs):
            return build.op("Add", name, other), seen[name]
        alike = all(
            one.ndim == two.ndim and numpy.delete(one.shape, axis).tolist() == numpy.delete(two.shape, axis).tolist()
            for one, two in pairs
        )
        if kind == "Concat" and alike:
            made = build.op("Concat", name, other, axis=axis)
            return made, tuple(numpy.concatenate(pair, axis) for pair in pairs)
        return None

    return operator


def reshape(draw, build, seen, name):
    if any(array.ndim != 3 or array.shape[2] != 4 for array in seen[name]):
        return None
    target = draw(some.sampled_from([(0, 0, 2, 2), (0, -1, 2), (0, 0, 2, -1)]))
    made = build.op("Reshape", name, build.ints(*target))
    return made, tuple(
        array.reshape([array.shape[axis] if size == 0 else size for axis, size in enumerate(target)])
        for array in seen[name]
    )


def take_one(draw, build, seen, name):
    if seen[name][0].ndim < 3:
        return None
    axis = an_axis(draw, seen[name])
    made = build.op("Gather", name, build.constant(numpy.int64(0)), axis=axis)
    return made, tuple(array.take(0, axis) for array in seen[name])


def expand_to_the_length_of_x(draw, build, seen, name):
    axis = an_axis(draw, seen[name])
    if any(array.shape[axis] != 1 for array in seen[name]):
        return None
    length = build.op("Gather", build.op("Shape", "x"), build.ints(1))
    parts = [length if place == axis else build.ints(1) for place in range(seen[name][0].ndim)]
    made = build.op("Expand", name, build.op("Concat", *parts, axis=0))
    return made, tuple(array.repeat(meaning["N"], axis) for array, meaning in zip(seen[name], MEANINGS, strict=True))


OPERATORS = (
    *(transpose, unsqueeze, cut, cut_to_the_length_of_p, combine("Concat"), combine("Add")),
    *(reshape, take_one, expand_to_the_length_of_x),
)


def observed(model):
    """Each tensor but constants, with its shapes in both meanings."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    named = {value.name: value for node in model.graph.nodes for value in node.outputs if node.op != "Constant"}
    known = {output.name for output in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in set(named) - known - {"x", "p"})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = [port.name for port in session.get_outputs() if port.name in named]
    for meaning in MEANINGS:
        feeds = {
            name: numpy.zeros((meaning["B"], meaning[size], 4), numpy.float32)
            for name, size in (("x", "N"), ("p", "P"))
        }
        arrays = feeds | dict(zip(outputs, session.run(outputs, feeds), strict=True))
        yield meaning, [(named[name], array.shape) for name, array in arrays.items()]


@settings(max_examples=150, deadline=None)
@given(programs())
def test_inferred_sizes_equal_those_of_a_run(model):
    sizes = infer_sizes(model)
    told = 0
    for meaning, seen in observed(model):
        for tensor, shape in seen:
            for size, own in zip(sizes.shape(tensor), shape, strict=True):
                value = value_of(size, meaning)
                told += value is not None
                assert value is None or value == own, (tensor.name, sizes.shape(tensor), shape)
    assert told


@settings(max_examples=150, deadline=None)
@given(programs())
def test_proven_sizes_hold_in_every_run(model):
    """Sizes that are proven equal are, and so are sums of them, whatever the inputs' sizes are."""
    sizes = Sizes(model.graph, {})
    for _, seen in observed(model):
        pairs = [pair for tensor, shape in seen for pair in zip(sizes.shape(tensor), shape, strict=True)]
        numbers: dict[object, int] = {}
        for size, own in pairs:
            if as_dimension(size) is not None:
                assert numbers.setdefault(dimension_name(size), own) == own
        for size, own in pairs:
            assert value_of(size, numbers) in {None, own}


@pytest.mark.parametrize("squares", [True, False], ids=["squares", "powers"])
def test_products_of_sizes_are_bounded(squares):
    """A graph that multiplies its sizes thousands of times is read in linear time."""
    build = builder_with_hidden_states()
    build.input("t", ["A", "B"])
    first = last = build.op("Shape", "t")
    for _ in range(2000):
        last = build.op("Mul", last, last if squares else first)
    build.output(build.op("Expand", build.constant(numpy.ones((1, 1), numpy.float32)), last), "filled", [None, None])
    build.output("hidden", "logits", ["B", "N", 12])
    model = build.model()
    sizes = infer_sizes(model).shape(next(node for node in model.graph.nodes if node.op == "Broadcast").outputs[0])
    assert sizes is not None
    assert all(size.op == "length" for size in sizes)


def test_sizes_of_unknown_ranks_stay_open():
    """An operator without rules hides the rank of what is reshaped."""
    nodes = [
        helper.make_node("Unheard", ["x"], ["hidden"], domain="example"),
        helper.make_node("Reshape", ["hidden", "target"], ["y"]),
    ]
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4])
    target = helper.make_tensor("target", TensorProto.INT64, [2], [-1, 4])
    graph = helper.make_graph(nodes, "open", [port], [result], [target])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("example", 1)]
    model = OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    shape = model.analysis(find_elements).shape(model.graph.writes["y"].source())
    assert shape[1].as_number == 4
    assert shape[0].op == "length"


def test_branches_of_different_ranks_have_no_rank():
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    branches (bool is_long, float[B, N] x) => (float[B, N] y) {
      axes = Constant<value_ints = [0]>()
      open = If (is_long) <
        then_branch = long () => (float[1, B, N] deep) { deep = Unsqueeze(x, axes) },
        else_branch = short () => (float[B, N] flat) { flat = Identity(x) }
      >
      shape = Shape(x)
      y = Reshape(open, shape)
    }
    """
    model = OnnxModel(onnx.parser.parse_model(text))
    branch = next(node for node in model.graph.nodes if node.op == "If")
    assert infer_sizes(model).shape(branch.outputs[0]) is None


def test_exact_sizes_of_slices_that_may_begin_outside_of_their_axis():
    text = """%x = Parameter : f32[b, n, 6]
    %last = Slice(%x, [-1], [9223372036854775807]) {axes=[1]}
    %four = Slice(%x, [-4], [9223372036854775807]) {axes=[1]}
    %within = Slice(%x, [-4], [9223372036854775807]) {axes=[2]}
    Result(%last) {name=last}
    Result(%four) {name=four}
    Result(%within) {name=within}"""
    model = parse_model(text)
    slices = [node.outputs[0] for node in model.graph.of_op("Slice")]
    axes = (1, 1, 2)
    for sizes, expected in ((infer_sizes(model), [1, 4, 4]), (infer_exact_sizes(model), [None, None, 4])):
        assert [sizes.shape(value)[axis].as_number for value, axis in zip(slices, axes, strict=True)] == expected


def test_a_declared_size_that_contradicts_the_operator_is_stale():
    """ONNX Runtime warns, and computes the size of the operator."""
    text = """<ir_version: 9, opset_import: ["": 18]>
    stale (float[b, 4] x) => (float[b, 4] y) <int64[1] zero = {0}, int64[1] last = {-1}> {
        cut = Slice (x, zero, last, last) y = Identity (cut)
    }"""
    model = OnnxModel(onnx.parser.parse_model(text))
    model.proto.graph.value_info.append(helper.make_tensor_value_info("cut", TensorProto.FLOAT, ["b", 4]))
    sizes = model.analysis(infer_exact_sizes)
    (result,) = model.graph.of_op("Result")
    assert sizes.shape(result.source())[1] is number(3)
