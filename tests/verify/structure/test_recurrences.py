"""LinearAttention is the loop over tokens that it stands for, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import onnx.parser
import openvino
import pytest
from onnx import GraphProto, TensorProto, helper
from openvino import opset13 as ops
from support.loaded import converted, run_once
from support.models import export, exporters

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.verify.structure.comparer import Comparer
from graphpass.verify.structure.proof import compare_structures
from graphpass.verify.structure.question import Question
from graphpass.verify.structure.weights import WeightDigests

SIZE = 4


def layer(rule: str, *, heads: int = 2, kv_heads: int = 2, key_heads: int = 2, rows: int = 1) -> OnnxModel:
    """Return a model of one LinearAttention, whose decay has ``rows`` for each head."""
    width = ["batch", "length"]
    shapes = {
        "query": [*width, heads * SIZE],
        "key": [*width, key_heads * SIZE],
        "value": [*width, kv_heads * SIZE],
        "past": ["batch", kv_heads, SIZE, SIZE],
        "decay": [*width, kv_heads * rows],
        **({"beta": [*width, kv_heads]} if "delta" in rule else {}),
    }
    attributes = {"update_rule": rule, "q_num_heads": heads, "kv_num_heads": kv_heads}
    node = helper.make_node(
        "LinearAttention", list(shapes), ["attended", "present"], "layer", domain="com.microsoft", **attributes
    )
    results = {"attended": [*width, max(heads, kv_heads) * SIZE], "present": shapes["past"]}
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports.items()]
        for ports in (shapes, results)
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "layer", inputs, outputs)
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def unequal(reference: Model, candidate: Model) -> list[str]:
    models = reference, candidate
    comparer = Comparer(models, WeightDigests(models), Question(("attended",)), unpadded=False)
    assert {result.name for result in comparer.results} >= {"attended", "past"}
    return sorted({result.name for result in comparer.unequal()})


@pytest.mark.parametrize(
    "model",
    [
        *(layer(rule) for rule in ("linear", "gated", "delta", "gated_delta")),
        layer("gated_delta", rows=SIZE),
        layer("gated_delta", heads=4),
        layer("gated", heads=4, kv_heads=4),
    ],
    ids=["linear", "gated", "delta", "gated_delta", "decay of rows", "query heads", "key heads"],
)
def test_an_operator_is_its_loop(model):
    assert unequal(model, run_once(model, "lower-operators").model) == []


def test_results_of_a_loop_have_the_sizes_of_its_body():
    """The product requires sizes of the Scan's result that only its body shows."""
    model = layer("gated_delta")
    (node,) = model.proto.graph.node
    node.output[0] = "result"
    model.proto.graph.node.append(helper.make_node("Mul", ["result", "query"], ["attended"], "gate"))
    assert unequal(model, run_once(model, "lower-operators").model) == []


def test_sizes_that_only_a_body_requires():
    """The Scan fails unless the sizes ``m`` and ``n`` are equal, and its result has either."""

    def scaled(other: str) -> OnnxModel:
        text = f"""<ir_version: 9, opset_import: ["": 18]>
        sums (float[m] p, float[n] q, float[length, 4] steps) => (float[k] attended)
        {{
            start = Neg(p)
            size = Shape({other})
            factor = Cast <to = 1> (size)
            final = Scan <num_scan_inputs = 1, body = step (float[k] before, float[4] row) => (float[k] after)
                {{ sum = ReduceSum <keepdims = 0> (row) sums = Add(before, sum) after = Add(sums, q) }}> (start, steps)
            attended = Mul(final, factor)
        }}"""
        return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))

    assert not differs(scaled("start"), scaled("start"))
    assert differs(scaled("start"), scaled("q"))


@pytest.mark.parametrize(
    ("body", "is_proven"),
    [("grown = Neg(x) taken = Neg(x)", True), ("grown = Concat <axis = 0> (x, x) taken = Neg(x)", False)],
    ids=["kept", "grown"],
)
def test_sizes_of_later_iterations(body, is_proven):
    """The second tensor has the size of the first one before each iteration, which may grow."""

    def shape_of(tensor: str) -> OnnxModel:
        text = f"""<ir_version: 9, opset_import: ["": 18]>
        sizes (float[m] p, float[m] q) => (float[k] attended)
        {{
            count = Constant <value = int64 {{3}}> ()
            start = Neg(p)
            last, final = Loop <body = step (int64 i, bool condition, float[k] x, float[k] y)
                => (bool condition, float[j] grown, float[k] taken) {{ {body} }}> (count, , start, start)
            tensor = {tensor}
            size = Shape(tensor)
            attended = Cast <to = 1> (size)
        }}"""
        return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))

    assert differs(shape_of("Neg(q)"), shape_of("Mul(final, q)")) is not is_proven


def test_sizes_that_a_body_without_iterations_requires():
    """The Concat in the second body would fail unless the sizes ``m`` and ``n`` are equal, but it does not run."""

    def shape_of(tensor: str) -> OnnxModel:
        text = f"""<ir_version: 9, opset_import: ["": 18]>
        sizes (float[m] p, float[n] q) => (float[k] attended, float rest)
        {{
            count = Constant <value = int64 {{3}}> ()
            none = Constant <value = int64 {{0}}> ()
            start = Neg(p)
            axis = Constant <value_ints = [0]> ()
            zero = Constant <value = float {{0.0}}> ()
            final = Loop <body = step (int64 i, bool condition, float[k] x)
                => (bool condition, float[k] next) {{ next = Neg(x) }}> (count, , start)
            rest = Loop <body = never (int64 i, bool condition, float y)
                => (bool condition, float all) {{
                    u = Unsqueeze(p, axis) v = Unsqueeze(q, axis) both = Concat <axis = 0> (u, v)
                    all = ReduceMax <keepdims = 0> (both)
                }}> (none, , zero)
            tensor = {tensor}
            size = Shape(tensor)
            attended = Cast <to = 1> (size)
        }}"""
        return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))

    assert differs(shape_of("Neg(q)"), shape_of("Mul(final, q)"))


def swapped(kind: str, other: str) -> Callable[[GraphProto], None]:
    def edit(body: GraphProto) -> None:
        node = next(node for node in body.node if node.op_type == kind)
        node.op_type = other

    return edit


def without_decay(body: GraphProto) -> None:
    decayed = next(node for node in body.node if node.op_type == "Mul")
    decayed.input[1] = decayed.input[0]


def old_state(body: GraphProto) -> None:
    """Leave the state as the iteration found it."""
    body.output[0].name = body.input[0].name


@pytest.mark.parametrize(
    "edit",
    [swapped("Sub", "Add"), swapped("Add", "Sub"), without_decay, old_state],
    ids=["corrected otherwise", "subtracted", "no decay", "old state"],
)
def test_another_loop_is_not_equal(edit):
    model = layer("gated_delta")
    lowered = run_once(model, "lower-operators").model.clone()
    (scan,) = [node for node in lowered.proto.graph.node if node.op_type == "Scan"]
    edit(next(attribute.g for attribute in scan.attribute if attribute.name == "body"))
    assert unequal(model, OnnxModel(lowered.proto)) == ["attended", "past"]


@pytest.mark.parametrize("rule", ["gated", "delta"])
def test_another_rule_is_not_equal(rule):
    assert unequal(layer("gated_delta"), layer(rule)) == ["attended", "past"]


@pytest.mark.parametrize("target", ["gpu", "ort"])
def test_hybrids_are_equal_for_every_input(target):
    model = load(exporters("mobius", "qwen3_5_text"))
    found = compare_structures(model, converted(model, target).model)
    assert found is not None
    assert found.equal == found.operators, found.regions


def test_a_loop_filling_a_tensor_is_equal_for_every_input():
    """The loop of optimum-intel writes each token's result into a tensor; `mask-padding` edits its body."""
    model = load(export("qwen3_next", "ov-stateless"))
    found = compare_structures(model, converted(model, "npu").model)
    assert found is not None
    assert found.unpadded == found.operators, found.regions


def written_doubled(loop: Any, body: openvino.Model) -> None:
    (write,) = operators(body, "ScatterUpdate")
    write.input(2).replace_source_output(ops.add(write.input_value(2), write.input_value(2)).output(0))


def written_elsewhere(loop: Any, body: openvino.Model) -> None:
    (write,) = operators(body, "ScatterUpdate")
    write.input(1).replace_source_output(ops.constant([0], numpy.int32).output(0))


def without_the_last(loop: Any, body: openvino.Model) -> None:
    count = loop.input_value(0)
    one = ops.constant(1, dtype=count.get_element_type())
    loop.input(0).replace_source_output(ops.subtract(count, one).output(0))


def ended_early(loop: Any, body: openvino.Model) -> None:
    result = body.get_results()[loop.get_special_body_ports()[1]]
    result.input(0).replace_source_output(ops.constant(False).output(0))


def without_recall(loop: Any, body: openvino.Model) -> None:
    (recall,) = operators(body, "Subtract")
    recall.output(0).replace(recall.input_value(0))


def operators(model: openvino.Model, kind: str) -> list[openvino.Node]:
    return [op for op in model.get_ops() if op.get_type_name() == kind]


@pytest.mark.parametrize("edit", [written_doubled, written_elsewhere, without_the_last, ended_early, without_recall])
def test_another_loop_filling_a_tensor_is_not_equal(edit):
    model = load(export("qwen3_next", "ov-stateless"))
    other = model.clone()
    first = operators(other.ov_model, "Loop")[0]
    edit(first, first.get_function())
    other.ov_model.validate_nodes_and_infer_types()
    other.mark_edited()
    found = compare_structures(model, other)
    assert found is not None
    assert found.unpadded < found.operators


def loop(result: str, place: int = 0, *, direction: int = 0, factors: str = "1, 1") -> OnnxModel:
    """Return a model of a Scan that adds slices to a state, and takes one row of its ``result``."""
    text = f"""<ir_version: 9, opset_import: ["": 17]>
    loop (float[2, 4] past, float[length, 2, 4] steps) => (float[2, 4] present, float[1, 4] attended) {{
        factors = Constant <value = float[2, 1] {{{factors}}}> ()
        start = Mul(past, factors)
        final, stacked = Scan <num_scan_inputs = 1, scan_input_directions = [{direction}], body = step
            (float[2, 4] before, float[2, 4] slice) => (float[2, 4] after, float[2, 4] copied)
            {{
                turn = Constant <value = float[2, 2] {{1, 2, 3, 4}}> ()
                turned = MatMul(turn, before)
                sum = Add(turned, slice)
                after = Tanh(sum)
                copied = Identity(before)
            }}> (start, steps)
        place = Constant <value_ints = [{place}]> ()
        present = Identity(final)
        stack_row = Constant <value_ints = [0]> ()
        states = Gather <axis = 0> (stacked, place)
        state = Squeeze(states, stack_row)
        attended = Gather <axis = 0> ({result}, stack_row)
    }}"""
    return OnnxModel(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("model", "other"),
    [
        (loop("state"), loop("state", 1)),
        (loop("final"), loop("final", direction=1)),
        # Later states of a row read all rows of the first one.
        (loop("final"), loop("final", factors="1, 2")),
        (loop("state", 1), loop("state", 1, factors="1, 2")),
    ],
    ids=["another iteration", "last slice first", "another first state", "another first state, stacked"],
)
def test_rows_of_other_states_are_not_equal(model, other):
    assert differs(model, other)
    assert not differs(model, model.clone())


def outer_products(body: str) -> OnnxModel:
    """Return a model of a Scan over vectors ``row`` and ``column``, whose ``body`` computes the next square state."""
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    outer (float[length, 4] rows, float[length, 4] columns) => (float[4, 4] attended)
    <float[4, 4] zeros = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}>
    {{
        attended = Scan <num_scan_inputs = 2, body = step
            (float[4, 4] before, float[4] row, float[4] column) => (float[4, 4] after)
            {{
                shape = Constant <value_ints = [4, 1]> ()
                down = Reshape(column, shape)
                across = Reshape(row, shape)
                {body}
            }}> (zeros, rows, columns)
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


@pytest.mark.parametrize(
    ("body", "other"),
    [
        (
            "line = Transpose(across) product = Mul(down, line) after = Add(before, product)",
            "line = Transpose(across) product = Mul(down, line) sum = Add(before, product) after = Transpose(sum)",
        ),
        ("line = Transpose(across) after = Mul(down, line)", "line = Transpose(down) after = Mul(across, line)"),
    ],
    ids=["transposed in each iteration", "transposed in the last iteration"],
)
def test_transposed_states_are_not_equal(body, other):
    model = outer_products(body)
    assert differs(model, outer_products(other))
    assert not differs(model, model.clone())


def test_inputs_of_a_body_that_are_not_fed_are_not_the_number_of_the_iteration():
    model = loop_without_number(3, reads_number=True)
    assert not differs(model, model.clone())
    other = model.clone()
    (native,) = operators(other.ov_model, "Loop")
    native.set_special_body_ports([-1, 0])
    other.mark_edited()
    assert differs(model, other)


def test_slices_of_openvino_are_reported():
    model = loop("final")
    assert not differs(model, run_once(model, "to-openvino").model)
    assert differs(model, run_once(loop("final", direction=1), "to-openvino").model)


def differs(reference: Model, candidate: Model) -> bool:
    models = reference, candidate
    comparer = Comparer(models, WeightDigests(models), Question(("attended",)), unpadded=False)
    return "attended" in {result.name for result in comparer.unequal()}


def loop_without_number(
    turns: int, *, carries: bool = True, goes_on: bool = True, reads_number: bool = False
) -> OpenVINOModel:
    """Return a model of a Loop over 3 tokens, whose body does not read the number of the iteration by default."""
    x = ops.parameter([2, 3, 4], numpy.float32, name="x")
    x.output(0).set_names({"x"})
    token, state = (ops.parameter([2, 1, 4], numpy.float32) for _ in range(2))
    number = ops.parameter([], numpy.int64)
    total = ops.add(state, ops.multiply(token, ops.convert(number, "f32")) if reads_number else token)
    results = [ops.constant(numpy.array([goes_on])), total, ops.multiply(total, numpy.float32(2))]
    loop = ops.loop(ops.constant(numpy.int32(turns)), ops.constant(numpy.array(True)))
    loop.set_function(openvino.Model(results, [token, state, *([number] if reads_number else [])], "body"))
    loop.set_special_body_ports([2 if reads_number else -1, 0])
    loop.set_sliced_input(token, x.output(0), 0, 1, 1, -1, 1)
    start = ops.reduce_mean(x, ops.constant(numpy.int64([1])), True)
    loop.set_merged_input(state, start.output(0), total.output(0))
    last = loop.get_iter_value(results[1 if carries else 2].output(0), -1)
    attended = ops.concat([last, last], -1)
    attended.output(0).set_names({"attended"})
    return OpenVINOModel(openvino.Model([attended], [x], "loop"))


@pytest.mark.parametrize("other", [{"turns": 2}, {"turns": 3, "goes_on": False}, {"turns": 3, "carries": False}])
def test_loops_count_iterations_that_their_body_does_not_read(other):
    models = loop_without_number(3), loop_without_number(**other)

    def are_equal(*models: Model) -> bool:
        return not Comparer(models, WeightDigests(models), Question(("attended",)), unpadded=False).unequal()

    assert all(are_equal(model, model.clone()) for model in models)
    assert not are_equal(*models)
