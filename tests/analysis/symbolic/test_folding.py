"""`graphpass.analysis.symbolic.folding`: what depends on constants and known dimensions alone, and nothing else."""

from __future__ import annotations

import numpy
import onnx
import openvino
import pytest
from hypothesis import given, settings, strategies as st
from openvino import opset13 as ops, opset15
from support.constant_outputs import constant_of, graph_upstream

from graphpass.analysis.symbolic import folding
from graphpass.analysis.symbolic.folding import LIMIT, fold_cuts, fold_elements, fold_scalar, is_zero
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.graph import Graph

I64 = openvino.Type.i64
F32 = openvino.Type.f32


def tensor(*dims: int) -> openvino.Node:
    return ops.parameter(openvino.PartialShape(list(dims)), numpy.float32)


def ints(*values: int) -> openvino.Node:
    return ops.constant(numpy.array(values, numpy.int64))


def one(value: int) -> openvino.Node:
    return ops.constant(numpy.array(value, numpy.int64))


def test_a_scale_by_head_size_is_folded():
    size = ops.gather(ops.shape_of(tensor(-1, 4, -1, 16)), one(-1), one(0))
    scale = ops.divide(ops.constant(1.0, dtype=F32), ops.sqrt(ops.convert(size, "f32")))
    value = constant_of(scale.output(0))
    assert value is not None
    assert value.shape == ()
    assert value.item() == 0.25


def test_scalars_keep_their_shape():
    picked = ops.gather(ops.shape_of(tensor(3, 5)), one(1), one(0))
    for node, shape in ((picked, ()), (ops.unsqueeze(picked, ints(0)), (1,)), (ops.unsqueeze(picked, one(0)), (1,))):
        value = constant_of(node.output(0))
        assert value is not None
        assert value.shape == shape
        assert value.reshape(-1)[0] == 5


@pytest.mark.parametrize(("reduction", "expected"), [("none", [0, 2, 0]), ("sum", None)])
def test_scatters_with_reduction_are_not_folded(reduction, expected):
    places = ops.constant(numpy.array([[1], [1]]))
    value = constant_of(opset15.scatter_nd_update(ints(0, 0, 0), places, ints(1, 2), reduction).output(0))
    assert (None if value is None else value.tolist()) == expected


def test_rounded_quotients_of_torch_are_folded():
    """torch rounds down by a comparison of signs, with a remainder."""
    divisor = ops.gather(ops.shape_of(tensor(-1, 4, -1, 16)), one(1), one(0))
    for number, quotient in ((-7, -2), (-8, -2), (0, 0), (7, 1)):
        dividend = ops.add(divisor, one(number - 4))
        signs = ops.not_equal(ops.sign(dividend), ops.sign(divisor))
        value = constant_of(ops.select(signs, one(-2 if number < 0 else 0), one(quotient)).output(0))
        assert value is not None
        assert value.item() == quotient


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda shape: ops.gather(shape, ints(1, 3), one(0)), [4, 16]),
        (lambda shape: ops.slice(shape, ints(3), ints(9), ints(1), ints(0)), [16]),
        (lambda shape: ops.slice(shape, ints(-1), ints(-9), ints(-2), ints(0)), [16, 4]),
        (lambda shape: ops.concat([ops.gather(shape, ints(1), one(0)), ints(7)], 0), [4, 7]),
        (lambda shape: ops.gather(ops.concat([shape, ints(7)], 0), ints(4, 1), one(0)), [7, 4]),
        (lambda shape: ops.gather(ops.convert(shape, "i32"), ints(3), one(0)), [16]),
        (lambda shape: ops.gather(ops.reshape(shape, ints(2, 2), False), one(1), one(1)), [4, 16]),
        (lambda shape: ops.multiply(ops.gather(shape, ints(1), one(0)), ops.gather(shape, ints(3), one(0))), [64]),
    ],
)
def test_unknown_dimensions_may_be_dropped(build, value):
    found = constant_of(build(ops.shape_of(tensor(-1, 4, -1, 16))).output(0))
    assert found is not None
    assert found.tolist() == value


@pytest.mark.parametrize(
    "build",
    [
        lambda shape: shape,
        lambda shape: ops.gather(shape, one(0), one(0)),
        lambda shape: ops.multiply(ops.gather(shape, ints(0), one(0)), ints(2)),
        lambda shape: ops.gather(ops.add(shape, ints(1, 1, 1, 1)), ints(2), one(0)),
        lambda shape: ops.gather(ints(5, 6, 7), ops.gather(shape, one(0), one(0)), one(0)),
        lambda shape: ops.reduce_prod(shape, ints(0), False),
        lambda shape: ops.broadcast(ints(1), ops.gather(shape, ints(0), one(0))),
        lambda shape: ops.convert(shape, "f32"),
        lambda shape: ops.maximum(ops.gather(shape, ints(2), one(0)), ints(1)),
    ],
)
def test_unknown_dimensions_are_never_computed_with(build):
    assert constant_of(build(ops.shape_of(tensor(-1, 4, -1, 16))).output(0)) is None


def test_bounded_dimensions_are_unknown():
    parameter = ops.parameter(openvino.PartialShape([openvino.Dimension(2, 9), 4]), numpy.float32)
    assert constant_of(ops.gather(ops.shape_of(parameter), ints(0), one(0)).output(0)) is None


@pytest.mark.parametrize(
    "node",
    [
        tensor(2, 2),
        ops.relu(tensor(2, 2)),
        ops.shape_of(ops.parameter(openvino.PartialShape.dynamic(), numpy.float32)),
        ops.constant(numpy.zeros(5000, numpy.float32)),
        ops.read_value(ops.constant(numpy.ones([2, 2], numpy.float32)), "state", F32, openvino.PartialShape([2, 2])),
        ops.random_uniform(ints(2), ops.constant(0.0, dtype=F32), ops.constant(1.0, dtype=F32), "f32"),
        ops.constant(numpy.array([1, 2, 3, 4], numpy.uint8), dtype=openvino.Type.u4),
    ],
    ids=lambda node: node.get_type_name(),
)
def test_other_values_are_not_folded(node):
    assert constant_of(node.output(0)) is None


def test_parts_of_a_split_are_folded():
    split = ops.variadic_split(ints(1, 2, 3), one(0), ints(1, 2))
    assert [constant_of(output).tolist() for output in split.outputs()] == [[1], [2, 3]]


def test_a_long_chain_is_folded_without_recursion_and_once():
    node = ints(1)
    for _ in range(2000):
        node = ops.maximum(node, node)
    assert constant_of(ops.minimum(node, ints(7)).output(0)) is not None


def test_bf16_is_not_read_as_f16():
    for make, value in (
        (lambda: ops.constant(2.0, dtype=openvino.Type.bf16), 2.0),
        (lambda: ops.sqrt(ops.constant(16.0, dtype=openvino.Type.bf16)), 4.0),
        (lambda: ops.convert(ops.constant(-3.0, dtype=openvino.Type.bf16), "f32"), -3.0),
        (lambda: ops.convert(ops.constant(1.5, dtype=F32), "bf16"), 1.5),
        (lambda: ops.divide(*(ops.constant(number, dtype=openvino.Type.bf16) for number in (1.0, 4.0))), 0.25),
    ):
        found = constant_of(make().output(0))
        assert found is not None
        assert found.item() == value


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_numbers_are_rounded_to_their_own_type(kind):
    third = ops.divide(*(ops.constant(number, dtype=getattr(openvino.Type, kind)) for number in (1.0, 3.0)))
    rounded = numpy.float16(1 / 3) if kind == "f16" else 0.333984375
    assert constant_of(third.output(0)).item() == rounded


def test_a_folded_broadcast_allocates_nothing():
    whole = ops.broadcast(ops.constant(numpy.float32(2)), ints(1000, 1000, 1000))
    found = constant_of(whole.output(0))
    assert found.shape == (1000, 1000, 1000)
    assert found.base is not None
    assert constant_of(ops.add(whole, whole).output(0)) is None
    numbers = ops.constant(numpy.ones(LIMIT, numpy.float32))
    square = [ops.reshape(numbers, ints(*shape), False) for shape in ((1, -1), (-1, 1))]
    assert constant_of(ops.multiply(*square).output(0)) is None


def test_elements_of_copies_to_an_unknown_shape():
    copies = ops.broadcast(ops.constant(numpy.float32([3])), ops.shape_of(tensor(-1, 4)))
    graph, value = graph_upstream(ops.convert(copies, "f16").output(0))
    assert (folding.fold(graph, value), fold_elements(graph, value).tolist()) == (None, [3])


def test_whole_numbers_are_divided_as_the_dialect_does():
    for first, second, found in ((7, 2, 3), (6, 3, 2), (-7, 2, -4), (7, 0, None)):
        quotient = constant_of(ops.divide(ints(first), ints(second)).output(0))
        assert (None if quotient is None else quotient.tolist()) == (None if found is None else [found])


def test_a_constant_beside_unknown_values_is_not_read():
    def read(node):
        raise AssertionError(node.name)

    graph, value = graph_upstream(ops.multiply(ints(2), ops.convert(tensor(1), "i64")).output(0))
    assert fold_scalar(Graph(graph.nodes, read, graph.spelling), value) is None


def _cuts(node: openvino.Node) -> list[tuple[object, ...]]:
    graph, value = graph_upstream(node.output(0))
    return [
        (cut.axis, cut.start, cut.stop, cut.step, cut.keeps_axis) for cut in fold_cuts(graph, graph.producer(value))
    ]


def test_bounds_of_slices_are_read():
    whole, far = tensor(-1, 4, -1, 16), 2**31 - 1
    length = ops.gather(ops.shape_of(whole), ints(2), one(0))
    assert _cuts(ops.slice(whole, ints(0, 1), ints(-1, far), ints(1, 2), ints(-1, 1))) == [
        (3, 0, -1, 1, True),
        (1, 1, far, 2, True),
    ]
    assert _cuts(ops.slice(whole, ints(0), length, ints(1), ints(2))) == [(2, 0, None, 1, True)]
    assert _cuts(ops.slice(whole, ints(0, 1), ints(2, 3), ints(1, 1))) == [(0, 0, 2, 1, True), (1, 1, 3, 1, True)]
    bounds = ints(5, 1, 2), ints(6, 9, 9)
    assert _cuts(ops.strided_slice(whole, *bounds, ints(1, 1, 1), [1, 0, 0], [0, 1, 0], [], [0, 0, 1])) == [
        (0, 0, 6, 1, True),
        (1, 1, far, 1, True),
        (2, 2, 3, 1, False),
    ]
    assert _cuts(ops.strided_slice(whole, *bounds, ints(1, 1, 1), [1, 0, 0], [0, 1, 0], [1, 0, 0])) == []


def _onnx(*nodes: onnx.NodeProto) -> Graph:
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4, "length", 16])
    end = onnx.helper.make_empty_tensor_value_info("end")
    proto = onnx.helper.make_graph(list(nodes), "graph", [given], [end])
    opsets = [onnx.helper.make_opsetid("", 18)]
    return OnnxModel(onnx.helper.make_model(proto, opset_imports=opsets, ir_version=9)).graph


def _held(name: str, *numbers: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Constant", [], [name], value_ints=numbers)


def test_onnx_shape_of_some_axes():
    node = onnx.helper.make_node
    for bounds, found in (({"start": 1, "end": 2}, [4]), ({"start": -1}, [16]), ({"start": 1}, None)):
        graph = _onnx(node("Shape", ["x"], ["end"], **bounds))
        sizes = folding.fold(graph, graph.nodes[-1].source())
        assert (None if sizes is None else sizes.tolist()) == found


def test_onnx_slices_are_folded():
    node = onnx.helper.make_node
    bounds = [_held("start", -1), _held("stop", -5), _held("axes", 0), _held("steps", -2)]
    shape = [*bounds, node("Shape", ["x"], ["shape"])]
    for inputs, found in ((["start", "stop", "axes", "steps"], [16, 4]), (["stop", "start"], None)):
        graph = _onnx(*shape, node("Slice", ["shape", *inputs], ["end"]))
        sizes = folding.fold(graph, graph.nodes[-1].source())
        assert (None if sizes is None else sizes.tolist()) == found


@st.composite
def _shape_programs(draw):
    """Dimensions of a tensor, -1 where unknown, and steps of arithmetic on its shape."""
    dims = draw(st.lists(st.sampled_from([-1, -1, 1, 2, 3, 8]), min_size=2, max_size=4))
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["gather", "slice", "concat", "add", "multiply", "convert", "broadcast", "reshape"]),
                st.integers(0, 7),
                st.integers(0, 7),
            ),
            min_size=1,
            max_size=6,
        )
    )
    return dims, steps


def _program(dims: list[int], steps) -> tuple[openvino.Node, openvino.Node]:
    """The Parameter, and a vector computed from its shape."""
    parameter = tensor(*dims)
    made = [ops.shape_of(parameter)]
    for kind, first, second in steps:
        left, right = made[first % len(made)], made[second % len(made)]
        size, other = left.get_output_shape(0)[0], right.get_output_shape(0)[0]
        if kind == "gather":
            made.append(ops.gather(left, ints(first % size, second % size), one(0)))
        elif kind == "slice":
            made.append(ops.slice(left, ints(first % size), ints(first % size + 1), ints(1), ints(0)))
        elif kind == "concat":
            made.append(ops.concat([left, right], 0))
        elif kind == "convert":
            made.append(ops.convert(ops.convert(left, "i32"), "i64"))
        elif kind == "broadcast":
            piece = ops.gather(left, ints(second % size), one(0))
            made.append(ops.broadcast(piece, ints(3)))
        elif kind == "reshape":
            made.append(ops.reshape(ops.reshape(left, ints(1, size), False), ints(-1), False))
        elif size == other or 1 in (size, other):
            made.append((ops.add if kind == "add" else ops.multiply)(left, right))
    return parameter, made[-1]


@settings(max_examples=80, deadline=None)
@given(_shape_programs(), st.lists(st.lists(st.integers(1, 6), min_size=4, max_size=4), min_size=2, max_size=3))
def test_folded_shapes_equal_inference(program, sizes):
    dims, steps = program
    parameter, result = _program(dims, steps)
    folded = constant_of(result.output(0))
    model = openvino.Model([ops.result(result)], [parameter])
    compiled = openvino.compile_model(model, "CPU")
    found = []
    for size in sizes:
        shape = [own if dim == -1 else dim for dim, own in zip(dims, size, strict=False)]
        found.append(compiled([numpy.zeros(shape, numpy.float32)])[0].copy())
    if folded is not None:
        for value in found:
            numpy.testing.assert_array_equal(folded, value)
    elif -1 not in dims:
        pytest.fail("everything is known, but it was not folded")


@pytest.mark.parametrize(("bounds", "found"), [((2, 9, 3), [2, 5, 8]), ((3, 0, -1), [3, 2, 1]), ((4, 4, 1), [])])
def test_ranges_are_folded(bounds, found):
    made = constant_of(ops.range(*[one(bound) for bound in bounds], "i32").output(0))
    assert made is not None
    assert (made.tolist(), made.dtype) == (found, numpy.int32)


def test_a_long_range_is_not_folded():
    assert constant_of(ops.range(one(0), one(LIMIT + 1), one(1), "i64").output(0)) is None


@pytest.mark.parametrize(("filled", "found"), [(None, [[0.0, 0.0]]), (7, [[7, 7]])])
def test_a_filled_shape_is_folded(filled, found):
    node = onnx.helper.make_node
    given = {} if filled is None else {"value": onnx.numpy_helper.from_array(numpy.array([filled]))}
    graph = _onnx(_held("sizes", 1, 2), node("ConstantOfShape", ["sizes"], ["end"], **given))
    (result,) = graph.of_op("Result")
    folded = folding.fold(graph, result.source())
    assert folded is not None
    assert folded.tolist() == found


@pytest.mark.parametrize(("fill", "expected"), [(0.0, True), (1.0, False)])
def test_zeros_of_any_number_are_zero(fill, expected):
    length = ops.shape_of(tensor(-1, 4))
    zeros = ops.broadcast(ops.constant(0.0, dtype=F32), length)
    padded = ops.pad(ops.unsqueeze(zeros, ints(0)), ints(0, 1, 0), ints(0, 0, 2), "constant", ops.constant(fill, F32))
    graph, value = graph_upstream(padded.output(0))
    assert is_zero(graph, value) == expected


def test_what_is_computed_is_not_zero():
    graph, value = graph_upstream(tensor(2, 3).output(0))
    assert not is_zero(graph, value)
