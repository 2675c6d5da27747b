"""simplify-shapes: each length read once, nothing left that changes nothing, the same numbers."""

from __future__ import annotations

import functools

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import infer, integers
from support.decode import compiled, executed, fused_attention, greedy
from support.models import export, reference
from support.piped import piped
from support.thinned import crossed

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.io import load
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.masks.expose_window import ExposeWindow
from graphpass.passes.shapes.simplify_shapes import SimplifyShapes

ATTENTION = "ScaledDotProductAttention"
MODELS = ["llama", "gpt2", "gemma3_text", "deepseek_v3", "qwen3_moe", "phi3", "gptj"]


@functools.cache
def before(name: str, variant: str = "onnx") -> OpenVINOModel:
    model = load(export(name, variant))
    lead = [ToOpenVINO()] if variant == "onnx" else []
    model = PassManager([*lead, FuseAttention(), ExposeWindow()]).run(model).model
    assert isinstance(model, OpenVINOModel)
    return model


def simplified(model: OpenVINOModel, **options: bool) -> tuple[OpenVINOModel, object]:
    return piped(model, SimplifyShapes(**options))


def kinds(model: OpenVINOModel) -> list[str]:
    return [op.get_type_name() for op in model.ov_model.get_ordered_ops()]


def dimension(x: openvino.Node, axis: int) -> openvino.Node:
    return ops.gather(ops.shape_of(x), integers(axis), ops.constant(0))


def row(*shape: int) -> openvino.Node:
    return ops.constant(numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape))


def made(outputs: dict[str, openvino.Node], **inputs: openvino.Node) -> OpenVINOModel:
    results = []
    for name, output in outputs.items():
        results.append(ops.result(output))
        results[-1].output(0).set_names({name})
    for name, parameter in inputs.items():
        parameter.output(0).set_names({name})
    return OpenVINOModel(openvino.Model(results, [*inputs.values()], "made"))


def ends_of_masks(model: OpenVINOModel) -> set[str]:
    """Where the masks of all layers are cut, as the names of the nodes that say it."""
    masks = [op.input_value(3).get_node() for op in model.ov_model.get_ops() if op.get_type_name() == ATTENTION]
    return {mask.input_value(0).get_node().input_value(2).get_node().get_name() for mask in masks}


def test_all_layers_cut_their_mask_at_one_place():
    model = before("llama_12l")
    after, result = simplified(model, identities=False)
    assert result.changed
    assert result.statistics["reads shared"] > 400
    assert (len(ends_of_masks(model)), len(ends_of_masks(after))) == (12, 1)


@pytest.mark.parametrize(("name", "step"), crossed(MODELS[:5], [(4, 3, 2), (1, 9, 2), (5, 0, 2), (4, 3, 1)]))
def test_the_numbers_stay(name, step):
    """With one row all sequences of the batch share positions."""
    length, past, rows = step
    model = before(name)
    after, _ = simplified(model)
    random = numpy.random.default_rng(0)
    given = {
        "input_ids": random.integers(0, 320, [2, length]),
        "attention_mask": numpy.ones([2, past + length], numpy.int64),
        "position_ids": numpy.tile(numpy.arange(past, past + length), (rows, 1)),
    }
    given["attention_mask"][0, 0] = 0
    for port in model.ov_model.inputs:
        if "past" in port.get_any_name():
            shape = [2, *(past if size.is_dynamic else size.get_length() for size in list(port.partial_shape)[1:])]
            given[port.get_any_name()] = random.standard_normal(shape).astype(numpy.float32)
    names = {port.get_any_name() for port in model.ov_model.inputs}
    given = {key: value for key, value in given.items() if key in names}
    expected, found = infer(model.ov_model, given), infer(after.ov_model, given)
    for key, value in expected.items():
        numpy.testing.assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.parametrize(("identities", "name"), crossed([True, False], MODELS))
def test_decodes_the_reference_tokens_behind_padding(name, identities):
    model = PassManager([SimplifyShapes(identities=identities), MakeStateful()]).run(before(name)).model
    expected = reference(name)
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    ready = compiled(model.ov_model)
    assert greedy(ready.create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]
    assert fused_attention(ready) > 0


@pytest.mark.parametrize(
    ("name", "variant"), [(name, "onnx") for name in MODELS if name != "gptj"] + [("qwen3_next", "ov-stateless")]
)
def test_twice(name, variant):
    """In gptj what was dropped hid that one more length is equal."""
    after, _ = simplified(before(name, variant))
    _, result = simplified(after)
    assert not result.changed


def test_a_model_that_reads_no_dimensions_is_left():
    x = ops.parameter([-1, 4], openvino.Type.f32)
    model = OpenVINOModel(openvino.Model([ops.result(ops.relu(x))], [x], "plain"))
    _, result = simplified(model)
    assert not result.changed


def test_gated_delta_nets_stay_recognisable():
    """The plugin knows them by a scale that is computed of a known dimension."""
    model = PassManager([SimplifyShapes(), MakeStateful()]).run(before("qwen3_next", "ov-stateless")).model
    kinds = executed(compiled(model.ov_model))
    assert kinds["GatedDeltaNet"] == 3
    assert kinds["TensorIterator"] == 0


def test_no_mask_waits_for_the_attention_that_reads_it():
    """The plugin makes the grown cache an output of attention; what reads its length must not come before."""
    model = PassManager([SimplifyShapes(), MakeStateful()]).run(before("qwen3")).model
    assert fused_attention(compiled(model.ov_model)) == 2


#: x and y are [batch, length, 8], of two batches and lengths.
IDENTITIES = {
    "slice of the whole": (lambda x, y: ops.slice(x, integers(0), dimension(x, 1), integers(1), integers(1)), True),
    "slice of another's length": (
        lambda x, y: ops.slice(x, integers(0), dimension(y, 1), integers(1), integers(1)),
        False,
    ),
    "reversed": (lambda x, y: ops.slice(x, integers(-1), integers(-(2**63)), integers(-1), integers(1)), False),
    "broadcast to its shape": (lambda x, y: ops.broadcast(x, ops.shape_of(x)), True),
    "broadcast to another's shape": (lambda x, y: ops.broadcast(x, ops.shape_of(y)), False),
    "reshape to its shape": (lambda x, y: ops.reshape(x, ops.shape_of(x), False), True),
    "reshape to another's shape": (lambda x, y: ops.reshape(x, ops.shape_of(y), False), False),
    "conversion to its type": (lambda x, y: ops.convert(x, "f32"), True),
    "conversion": (lambda x, y: ops.convert(x, "f64"), False),
    "transposed in order": (lambda x, y: ops.transpose(x, integers(0, 1, 2)), True),
    "transposed": (lambda x, y: ops.transpose(x, integers(1, 0, 2)), False),
    "joined alone": (lambda x, y: ops.concat([x], 1), True),
    "joined with itself": (lambda x, y: ops.concat([x, x], 1), False),
}


@pytest.mark.parametrize("form", IDENTITIES)
def test_an_operator_that_gives_its_input_goes(form):
    build, goes = IDENTITIES[form]
    x, y = (ops.parameter([-1, -1, 8], openvino.Type.f32) for _ in range(2))
    operator = build(x, y)
    model = made({"out": ops.relu(operator), "kept": ops.relu(y)}, x=x, y=y)
    after, result = simplified(model)
    assert result.changed is goes
    assert (operator.get_type_name() in kinds(after)) is not goes
    assert not simplified(model, identities=False)[1].changed


def test_a_reshape_that_tells_the_number_of_heads_stays():
    """Nobody else infers it: paged attention forgets sinks where it cannot see the query's heads."""
    x = ops.parameter([-1, -1, 64], openvino.Type.f32)
    shape = ops.concat([ops.gather(ops.shape_of(x), integers(0, 1), ops.constant(0)), integers(-1, 16)], 0)
    query = ops.transpose(ops.reshape(x, shape, False), integers(0, 2, 1, 3))
    told = ops.reshape(query, integers(0, 4, -1, 0), True)
    after, _ = simplified(made({"out": ops.relu(told)}, x=x))
    assert after.ov_model.outputs[0].get_partial_shape()[1] == openvino.Dimension(4)


def test_what_an_output_is_named_after_stays():
    x = ops.parameter([-1, 8], openvino.Type.f32)
    same = ops.convert(x, "f32")
    same.output(0).set_names({"named"})
    model = OpenVINOModel(openvino.Model([ops.result(same)], [x], "named"))
    after, result = simplified(model)
    assert not result.changed
    assert [port.name for port in after.outputs] == ["named"]


def test_inputs_keep_their_names_alone():
    x = ops.parameter([-1, 8], openvino.Type.f32)
    same = ops.convert(x, "f32")
    same.output(0).set_names({"inner"})
    after, _ = simplified(made({"out": ops.relu(same)}, x=x))
    assert after.ov_model.inputs[0].get_names() == {"x"}


def test_masks_stay_in_the_form_from_which_windows_are_read():
    after, _ = simplified(before("gemma3_text"))
    masks = [op.input_value(3).get_node() for op in after.ov_model.get_ops() if "Attention" in op.get_type_name()]
    ends = [(mask, mask.input_value(0).get_node()) for mask in masks if mask.get_type_name() == "Slice"]
    assert len(ends) == 3
    assert all(select.input_value(0).get_node().get_type_name() == "Broadcast" for _, select in ends)


def test_llama_has_no_needless_conversions_left():
    after, result = simplified(before("llama"))
    assert result.changed
    assert result.statistics["Convert dropped"] > 20
    same = [op for op in after.ov_model.get_ops() if op.get_type_name() == "Convert"]
    assert all(op.get_input_element_type(0) != op.get_output_element_type(0) for op in same)


#: x is [batch, 1, 6], y is [batch, 1, 6] of another batch.
BROADCASTS = {
    "product with the batch": (
        lambda x, y: ops.matmul(
            ops.broadcast(row(1, 4, 1), ops.concat([dimension(x, 0), integers(4, 1)], 0)), x, False, False
        ),
        True,
    ),
    "product with another batch": (
        lambda x, y: ops.matmul(
            ops.broadcast(row(1, 4, 1), ops.concat([dimension(y, 0), integers(4, 1)], 0)), x, False, False
        ),
        False,
    ),
    "product with the weights of experts": (
        lambda x, y: ops.matmul(
            ops.broadcast(
                ops.reshape(x, integers(1, -1, 6), False), ops.concat([integers(4), dimension(x, 0), integers(6)], 0)
            ),
            row(4, 6, 8),
            False,
            False,
        ),
        False,
    ),
    "rows of a product": (
        lambda x, y: ops.matmul(
            ops.broadcast(row(1, 1, 1), ops.concat([dimension(x, 0), integers(4, 1)], 0)), x, False, False
        ),
        False,
    ),
    "sum": (lambda x, y: ops.add(x, ops.broadcast(row(6), ops.shape_of(x))), True),
    "sum with another batch": (lambda x, y: ops.add(x, ops.broadcast(row(6), ops.shape_of(y))), False),
    "sum of higher rank": (lambda x, y: ops.add(row(6), ops.broadcast(row(6), integers(1, 6))), False),
    "two into one": (
        lambda x, y: ops.add(ops.broadcast(row(6), ops.shape_of(x)), ops.broadcast(row(6), ops.shape_of(x))),
        True,
    ),
    "choice": (
        lambda x, y: ops.select(ops.greater(x, y), ops.broadcast(row(6), ops.shape_of(ops.add(x, y))), x),
        False,
    ),
    "activation": (lambda x, y: ops.relu(ops.broadcast(row(6), ops.shape_of(x))), False),
}


@pytest.mark.parametrize("form", BROADCASTS)
def test_a_broadcast_that_its_user_does_not_need_goes(form):
    build, goes = BROADCASTS[form]
    x, y = (ops.parameter([-1, 1, 6], openvino.Type.f32) for _ in range(2))
    model = made({"out": build(x, y), "kept": ops.relu(y)}, x=x, y=y)
    after, outcome = simplified(model)
    assert outcome.changed is goes
    random = numpy.random.default_rng(0)
    for batches in ((3, 3), (3, 1), (1, 1)):
        given = {
            name: random.standard_normal([batch, 1, 6]).astype(numpy.float32)
            for name, batch in zip("xy", batches, strict=True)
        }
        expected, found = infer(model.ov_model, given), infer(after.ov_model, given)
        numpy.testing.assert_array_equal(found["out"], expected["out"])


@pytest.mark.parametrize("name", ["llama", "phi3"])
def test_frequencies_are_not_expanded(name):
    after, result = simplified(before(name))
    assert result.changed
    assert result.statistics["broadcasts dropped"] > 0
    products = [op for op in after.ov_model.get_ops() if op.get_type_name() in {"MatMul", "Multiply"}]
    sources = [source for op in products for source in op.input_values()]
    assert not [
        source
        for source in sources
        if source.get_node().get_type_name() == "Broadcast" and source.get_element_type() == openvino.Type.f32
    ]


def test_one_token_a_step_reads_the_length_of_its_inputs():
    """The CPU plugin makes the grown cache an output of attention, whose mask must not wait for its shape."""
    model = load(export("llama", "onnx"))
    for info in model.proto.graph.input:
        if info.name in {"input_ids", "position_ids"}:
            info.type.tensor_type.shape.dim[1].dim_value = 1
    model.mark_edited()
    result = PassManager([ToOpenVINO(), FuseAttention(), SimplifyShapes()]).run(model)
    assert result.records[-1].result.statistics["reads of keys redirected"] == 4
    compiled(result.model.ov_model)


@pytest.mark.parametrize(("repeats", "kept"), [((1, 1, 3), False), ((2, 1, 1), True), ((1, 2, 3), True), ((3,), True)])
def test_tiles_of_axes_of_size_1_are_broadcasts(repeats, kept):
    x = ops.parameter([-1, 2, 1], numpy.float32)
    model = made({"y": ops.tile(x, ops.constant(numpy.array(repeats)))}, x=x)
    result, _ = simplified(model)
    assert ("Tile" in kinds(result), "Broadcast" in kinds(result)) == (kept, not kept)
    given = numpy.arange(6, dtype=numpy.float32).reshape(3, 2, 1)
    numpy.testing.assert_array_equal(infer(result.ov_model, {"x": given})["y"], numpy.tile(given, repeats))


def test_no_size_is_read_from_what_it_makes():
    """The mask is as large as a size of the keys, and is the only other place that has this size."""
    query, new = (ops.parameter([-1, 2, -1, 8], numpy.float32) for _ in range(2))
    past = ops.parameter([-1, 2, -1, 8], numpy.float32)
    key = ops.concat([past, new], 2)
    length = ops.reshape(dimension(key, 2), integers(1), special_zero=False)
    square = ops.broadcast(ops.constant(numpy.float32(0)), ops.concat([length, length], 0))
    attention = ops.scaled_dot_product_attention(query, key, key, square)
    model = made({"result": attention, "sizes": ops.shape_of(square)}, query=query, new=new, past=past)
    after, _ = simplified(model)
    feeds = {
        name: numpy.ones([1, 2, length, 8], numpy.float32) for name, length in (("query", 5), ("new", 5), ("past", 0))
    }
    numpy.testing.assert_array_equal(infer(after.ov_model, feeds)["sizes"], [5, 5])
