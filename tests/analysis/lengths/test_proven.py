"""Dimensions that are proven equal, and tensors that hold them."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.loaded import onnx_model, openvino_model

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic.equal_sizes import Vector
from graphpass.analysis.symbolic.expressions import add, number
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.convert.to_openvino import ToOpenVINO


def ints(*values: int) -> openvino.Node:
    return ops.constant(numpy.array(values, numpy.int64))


def scalar(value: int) -> openvino.Node:
    return ops.constant(value, dtype=numpy.int64)


def parameter(name: str, *shape: int) -> openvino.Node:
    made = ops.parameter(list(shape), openvino.Type.f32)
    made.set_friendly_name(name)
    made.output(0).set_names({name})
    return made


class Lengths:
    """What is proven of OpenVINO's own outputs."""

    def __init__(self, model: OpenVINOModel) -> None:
        self.sizes = find_lengths(model)
        nodes = model.graph.nodes
        self.values = {(node.native.get_name(), value.port): value for node in nodes for value in node.outputs}

    def shape(self, output: openvino.Output) -> Vector | None:
        return self.sizes.shape(self.values[output.get_node().get_name(), output.get_index()])

    def value(self, output: openvino.Output) -> Vector | None:
        return self.sizes.content(self.values[output.get_node().get_name(), output.get_index()])


def lengths_of(inputs: list[openvino.Node], *outputs: openvino.Node) -> Lengths:
    return Lengths(OpenVINOModel(openvino.Model([ops.result(output) for output in outputs], inputs, "made")))


def dimension(source: openvino.Node, axis: int) -> openvino.Node:
    return ops.gather(ops.shape_of(source), scalar(axis), scalar(0))


def test_a_value_equals_its_source_dimension():
    x = parameter("x", -1, -1, 8)
    length = dimension(x, 1)
    vector = ops.concat([ops.unsqueeze(length, scalar(0)), ints(5)], 0)
    sizes = lengths_of([x], vector)
    shape = sizes.shape(x.output(0))
    assert sizes.value(length.output(0)) == (shape[1],)
    assert sizes.value(vector.output(0))[0] == shape[1]
    assert sizes.value(vector.output(0))[1].as_number == 5
    assert shape[0] != shape[1]


def test_a_concatenation_is_as_long_as_its_parts():
    x, y = parameter("x", -1, 8), parameter("y", -1, 8)
    joined = ops.concat([x, y], 0)
    total = ops.add(dimension(x, 0), dimension(y, 0))
    sizes = lengths_of([x, y], joined, total)
    assert sizes.shape(joined.output(0))[0] == sizes.value(total.output(0))[0]


def test_a_range_is_as_long_as_its_bounds_are_apart():
    x, y = parameter("x", -1, 8), parameter("y", -1, 8)
    start = dimension(x, 0)
    positions = ops.range(start, ops.add(start, dimension(y, 0)), scalar(1), "i64")
    other = ops.range(start, dimension(y, 0), scalar(1), "i64")
    sizes = lengths_of([x, y], positions, other)
    assert sizes.shape(positions.output(0))[0] == sizes.shape(y.output(0))[0]
    assert sizes.shape(other.output(0))[0] != sizes.shape(y.output(0))[0]


def test_minus_one_in_a_reshape_is_resolved():
    x = parameter("x", -1, -1, 64)
    shape = ops.concat([ops.gather(ops.shape_of(x), ints(0, 1), scalar(0)), ints(-1, 16)], 0)
    heads = ops.reshape(x, shape, False)
    sizes = lengths_of([x], heads)
    assert sizes.shape(heads.output(0))[:2] == sizes.shape(x.output(0))[:2]
    assert [size.as_number for size in sizes.shape(heads.output(0))[2:]] == [4, 16]


def test_broadcasting_does_not_make_dimensions_equal():
    x, y = parameter("x", -1, 8), parameter("y", -1, 8)
    both = ops.add(x, y)
    sizes = lengths_of([x, y], both)
    found = [sizes.shape(node.output(0))[0] for node in (x, y, both)]
    assert len(set(found)) == 3


def test_dimensions_of_a_sum_are_equal():
    x, y = parameter("x", -1, 8), parameter("y", -1, 3)
    sizes = lengths_of([x, y], ops.concat([x, y], 1))
    assert sizes.shape(x.output(0))[0] == sizes.shape(y.output(0))[0]


@pytest.mark.parametrize(("stop", "whole"), [("own", True), ("longer", True), ("shorter", False), ("other", False)])
def test_a_slice_of_the_whole(stop, whole):
    x, y = parameter("x", -1, 8), parameter("y", -1, 8)
    own, other = dimension(x, 0), dimension(y, 0)
    stops = {"own": own, "longer": ops.add(own, other), "shorter": ops.subtract(own, scalar(1)), "other": other}
    cut = ops.slice(x, ints(0), ops.unsqueeze(stops[stop], scalar(0)), ints(1), ints(0))
    sizes = lengths_of([x, y], cut)
    assert (sizes.shape(cut.output(0))[0] == sizes.shape(x.output(0))[0]) is whole


def test_a_broadcast_to_the_same_size_is_known():
    """Keys are as long as positions and tokens; PyTorch's expand takes them to the tokens' length, or keeps it."""
    tokens, positions = parameter("tokens", -1, 1, 8), parameter("positions", -1, 1, 8)
    keys = ops.multiply(tokens, positions)
    target = ops.concat([ops.unsqueeze(dimension(tokens, 0), scalar(0)), ints(2, 8)], 0)
    copies = ops.broadcast(keys, target, None, "BIDIRECTIONAL")
    sizes = lengths_of([tokens, positions], copies)
    assert sizes.shape(copies.output(0))[0] == sizes.shape(keys.output(0))[0]
    assert sizes.shape(copies.output(0))[0] != sizes.shape(tokens.output(0))[0]


@pytest.mark.parametrize("own", [True, False])
def test_a_broadcast_to_another_size_is_unknown(own):
    x, y = parameter("x", -1, 8), parameter("y", -1, 8)
    copies = ops.broadcast(x, ops.shape_of(x if own else y), None, "BIDIRECTIONAL")
    sizes = lengths_of([x, y], copies)
    found = sizes.shape(copies.output(0))[0]
    assert (found == sizes.shape(x.output(0))[0]) is own
    assert found != sizes.shape(y.output(0))[0]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: ops.reduce_mean(x, ops.range(scalar(-1), scalar(0), scalar(1), "i64"), keep_dims=True), "B L 1"),
        (lambda x: ops.reduce_sum(x, ints(1), keep_dims=False), "B 6"),
        (lambda x: ops.split(x, scalar(2), 3).output(1), "B L 2"),
        (lambda x: ops.variadic_split(x, scalar(2), ints(4, 2)).output(1), "B L 2"),
        (lambda x: ops.transpose(x, ints(1, 0, 2)), "L B 6"),
        (lambda x: ops.squeeze(ops.gather(x, ints(3), scalar(2)), scalar(2)), "B L"),
        (lambda x: ops.pad(x, ints(0, 2, 0), ints(0, 1, 0), "constant"), "B L+3 6"),
        (lambda x: ops.tile(x, ints(1, 1, 2)), "B L 12"),
        (lambda x: ops.topk(x, scalar(2), 1, "max", "value").output(0), "B 2 6"),
        (lambda x: ops.matmul(x, x, False, True), "B L L"),
        (lambda x: ops.softmax(x, 1), "B L 6"),
        (lambda x: ops.reshape(x, ints(0, -1, 2, 3), True), "B L 2 3"),
        (lambda x: ops.strided_slice(x, ints(0, 0, 0), ints(0, 0, 2), ints(1, 1, 1), [1, 1, 0], [1, 1, 0]), "B L 2"),
    ],
)
def test_operators_propagate_sizes(build, expected):
    x = parameter("x", -1, -1, 6)
    output = build(x)
    output = output if isinstance(output, openvino.Output) else output.output(0)
    sizes = lengths_of([x], ops.relu(output))
    batch, length = sizes.shape(x.output(0))[:2]
    meaning = {"B": batch, "L": length, "L+3": add(length, number(3))}
    assert sizes.shape(output) == tuple(meaning.get(word) or number(int(word)) for word in expected.split())


@pytest.mark.parametrize(("rows", "keeps"), [(-1, False), (1, True)])
def test_attention_is_as_long_as_its_query_unless_the_mask_may_have_more_rows(rows, keeps):
    query, key, mask = parameter("q", -1, 4, -1, 8), parameter("k", -1, 4, -1, 8), parameter("m", 1, 1, rows, -1)
    attended = ops.scaled_dot_product_attention(query, key, key, mask)
    sizes = lengths_of([query, key, mask], attended)
    assert (sizes.shape(attended.output(0))[2] == sizes.shape(query.output(0))[2]) is keeps


def test_key_and_value_of_one_attention_are_equally_long():
    query, key, value = (parameter(name, 1, 4, -1, 8) for name in "qkv")
    attended = ops.scaled_dot_product_attention(query, key, value)
    sizes = lengths_of([query, key, value], attended)
    assert sizes.shape(key.output(0))[2] == sizes.shape(value.output(0))[2]
    assert sizes.shape(key.output(0))[2] != sizes.shape(query.output(0))[2]


def test_lengths_are_computed_once():
    model = PassManager([ToOpenVINO(), FuseAttention()]).run(onnx_model("llama")).model
    assert find_lengths(model) is find_lengths(model)


def caches_of(model: OpenVINOModel) -> set[object]:
    sizes = Lengths(model)
    return {sizes.shape(port)[2] for port in model.ov_model.inputs if "past" in port.get_any_name()}


@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v3", "gemma3_text"])
def test_all_caches_of_a_decoder_are_equally_long(name):
    model = PassManager([ToOpenVINO(), FuseAttention()]).run(onnx_model(name)).model
    assert isinstance(model, OpenVINOModel)
    assert len(caches_of(model)) == 1


def grown_twice(variant: str) -> OpenVINOModel:
    """A model whose second layer appends each key and value twice."""
    model = openvino_model("llama", variant)
    for op in model.ov_model.get_ordered_ops():
        if op.get_type_name() == "Concat" and any(
            "past_key_values.1" in name for name in op.input_value(0).get_names()
        ):
            past, new = op.input_values()
            op.output(0).replace(ops.concat([past, new, new], 2).output(0))
    model.ov_model.validate_nodes_and_infer_types()
    model.mark_edited()
    return model


def test_caches_of_different_growth_have_different_lengths():
    assert len(caches_of(grown_twice("ov-stateless"))) > 1


def test_lengths_of_key_and_value_are_equal_within_a_layer():
    """Nothing proves that new keys are as many as tokens: angles are of ``position_ids``."""
    model = openvino_model("lfm2")
    sizes = find_lengths(model)
    found = [
        (cache.layer, sizes.shape(model.graph.reads[cache.read].outputs[0])[2])
        for cache in analyze_caches(model).of_kind("kv")
    ]
    assert len(set(found)) == 2 == len({length for _, length in found})


def test_the_model_is_unchanged():
    model = openvino_model("qwen3", "ov-stateless")
    before = model.digest()
    find_lengths(model)
    assert model.digest() == before
    assert not any(
        dimension.has_symbol()
        for op in model.ov_model.get_ordered_ops()
        for output in op.outputs()
        if output.get_partial_shape().rank.is_static
        for dimension in output.get_partial_shape()
    )
