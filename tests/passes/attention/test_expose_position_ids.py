"""expose-position-ids: same numbers with counted positions, other rotations with others, masks untouched."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import infer, infer_each, integers
from support.decode import compiled, greedy
from support.loaded import exported, onnx_model, openvino_after, run_once
from support.models import exporters, reference
from support.pipelines import run_passes
from support.random_inputs import random_inputs

import graphpass
from graphpass.analysis.equations.activations import computed_by_positions
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.io import load
from graphpass.passes.attention.expose_position_ids import ExposePositionIds
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.runtime import open_session
from graphpass.verify import compare

COUNTING = [
    ("gemma3_text", "onnx"),
    ("lfm2", "ov-stateless"),
    ("qwen3_next", "ov-stateless"),
    ("granitemoehybrid", "ov-stateless"),
]


def before(name: str, variant: str) -> OpenVINOModel:
    model = exported(f"{name}/{variant}")
    return openvino_after(model, ToOpenVINO(), FuseAttention()) if variant == "onnx" else model


def exposed(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return run_passes(model, ExposePositionIds())


@pytest.mark.parametrize(("name", "variant"), COUNTING)
def test_counted_positions_compute_the_same(name, variant):
    model = before(name, variant)
    after, result = (openvino_after(model, ExposePositionIds()), run_once(model, ExposePositionIds()).records[0].result)
    assert result.changed
    assert [port.name for port in after.inputs] == [*(port.name for port in model.inputs), "position_ids"]
    assert after.inputs[-1].element_type == "i64"
    assert after.inputs[-1].shape == (None, None)
    sizes = [(4, 3), (1, 9), (5, 0)]
    given = [random_inputs(after, length=length, past=past) for length, past in sizes]
    without = [{key: value for key, value in each.items() if key != "position_ids"} for each in given]
    outputs = infer_each(model.ov_model, without), infer_each(after.ov_model, given)
    for (length, past), expected, found in zip(sizes, *outputs, strict=True):
        sees = numpy.ones([2, length], bool)
        sees[0, 0] = past > 0
        for key, value in expected.items():
            if key == "logits":
                value, found[key] = value[sees], found[key][sees]
            numpy.testing.assert_allclose(found[key], value, atol=1e-5, err_msg=key)


def with_unread_input(model: OpenVINOModel) -> OpenVINOModel:
    """As optimum-intel exports qwen3_5_text: position_ids is there, and the model counts all the same, for 3 axes."""
    copy = model.clone()
    parameter = ops.parameter([-1, -1], numpy.int64, "position_ids")
    parameter.output(0).set_names({"position_ids"})
    copy.ov_model.add_parameters([parameter])
    laid_out = [
        op
        for op in copy.ov_model.get_ops()
        if op.get_type_name() in {"Unsqueeze", "Reshape"}
        and op.input_value(0).get_node().get_type_name() == "Range"
        and len(op.get_output_partial_shape(0)) == 2
    ]
    for row in laid_out:
        readers = list(row.output(0).get_target_inputs())
        deep = ops.reshape(row.input_value(0), integers(1, 1, -1), False)
        flat = ops.gather(
            ops.broadcast(deep, integers(3, 1, 1), broadcast_spec="BIDIRECTIONAL"), ops.constant(1), ops.constant(0)
        )
        for port in readers:
            port.replace_source_output(flat.output(0))
    copy.ov_model.validate_nodes_and_infer_types()
    copy.mark_edited()
    return copy


@pytest.mark.parametrize("variant", ["ov-stateful", "ov-stateless"])
def test_an_unread_input_is_used(variant):
    model = with_unread_input(before("lfm2", variant))
    after, result = exposed(model)
    assert result.changed
    assert sorted(port.name for port in after.inputs) == sorted(port.name for port in model.inputs)
    counting, told = open_session(before("lfm2", variant)), open_session(after)
    numpy.testing.assert_allclose(told.prefill([3, 9, 11, 200]), counting.prefill([3, 9, 11, 200]), atol=1e-5)
    numpy.testing.assert_allclose(told.step([[5]]), counting.step([[5]]), atol=1e-5)
    elsewhere = told.forward([[7]], position_ids=[[99]])["logits"]
    assert numpy.abs(elsewhere - counting.step([[7]])).max() > 1e-2
    assert isinstance(exposed(after)[1], Skipped)


def test_the_mask_does_not_read_exposed_positions():
    """Moving all positions leaves rotary attention unchanged; a mask that read them would see less."""
    after, _ = exposed(before("gemma3_text", "onnx"))
    given = random_inputs(after, length=6, past=0, batch=1)
    given["attention_mask"][:] = 1
    positions = given["position_ids"]
    moved = [positions, positions + 100, numpy.full_like(positions, 7)]
    given_each = [given | {"position_ids": each} for each in moved]
    expected, found, elsewhere = (each["logits"] for each in infer_each(after.ov_model, given_each))
    numpy.testing.assert_allclose(found, expected, atol=2e-3)
    assert numpy.abs(elsewhere - expected).max() > 1e-2


@pytest.mark.parametrize(("name", "variant"), COUNTING)
def test_a_second_run_is_skipped(name, variant):
    after = openvino_after(before(name, variant), ExposePositionIds())
    again, result = exposed(after)
    assert isinstance(result, Skipped)
    assert again.digest() == after.digest()


@pytest.mark.parametrize(("name", "variant"), [("llama", "onnx"), ("gpt2", "onnx"), ("gemma3_text", "ov-stateful")])
def test_models_with_the_input_are_skipped(name, variant):
    model = before(name, variant)
    after, result = exposed(model)
    assert isinstance(result, Skipped)
    assert "position_ids" in result.reason
    assert after.digest() == model.digest()


@pytest.mark.parametrize(("name", "variant"), [("mamba", "ov-stateless")])
def test_models_without_positions_are_unchanged(name, variant):
    model = before(name, variant)
    after, result = exposed(model)
    assert not result.changed
    assert after.digest() == model.digest()


class Counting:
    """A layer that counts positions from its cache's length, or from that of the mask."""

    def __init__(self, embedding: str, counted: str = "past") -> None:
        self.embedding, self.counted = embedding, counted

    def build(self) -> OpenVINOModel:
        self.ids = self.input("input_ids", "i64", [-1, -1])
        self.past = self.input("past_key_values.0.key", "f32", [-1, 2, -1, 4])
        past_value = self.input("past_key_values.0.value", "f32", [-1, 2, -1, 4])
        length = ops.gather(ops.shape_of(self.ids), ops.constant(1), ops.constant(0))
        past_length = ops.gather(ops.shape_of(self.past), ops.constant(2), ops.constant(0))
        self.past_length, self.end = past_length, ops.add(past_length, length)
        inputs = [self.ids, self.past, past_value]
        if self.counted == "mask":
            mask = self.input("attention_mask", "i64", [-1, -1])
            inputs.append(mask)
            total = ops.gather(ops.shape_of(mask), ops.constant(1), ops.constant(0))
            moved = ops.add(ops.range(ops.constant(0), length, ops.constant(1), "i64"), total)
            self.places = ops.subtract(moved, length)
        else:
            self.places = ops.range(past_length, self.end, ops.constant(1), "i64")
        row = ops.unsqueeze(self.places, integers(0))
        if self.counted == "sum of the mask":
            mask = self.input("attention_mask", "i64", [-1, -1])
            inputs.append(mask)
            counted = ops.multiply(ops.cum_sum(mask, ops.constant(1)), mask)
            counted = ops.subtract(counted, ops.constant(numpy.int64([1])))
            start = ops.reshape(past_length, integers(1), False)
            row = ops.slice(counted, start, integers(2**63 - 1), integers(1), integers(1))
        embedded = self.embedded(row)
        query = ops.transpose(ops.reshape(embedded, integers(0, 0, 2, 4), True), integers(0, 2, 1, 3))
        key = ops.concat([self.past, query], 2)
        value = ops.concat([past_value, query], 2)
        scale = ops.constant(numpy.float32(0.5))
        attended = ops.scaled_dot_product_attention(query, key, value, self.mask(row), scale, False)
        results = [ops.result(node) for node in (attended, key, value)]
        for result, name in zip(results, ("logits", "present.0.key", "present.0.value"), strict=True):
            result.output(0).set_names({name})
        return OpenVINOModel(openvino.Model(results, inputs))

    def input(self, name: str, element_type: str, shape: list[int]) -> openvino.Node:
        node = ops.parameter(openvino.PartialShape(shape), getattr(openvino.Type, element_type))
        node.set_friendly_name(name)
        node.output(0).set_names({name})
        return node

    def embedded(self, row: openvino.Node) -> openvino.Node:
        random = numpy.random.default_rng(0)
        words = ops.gather(ops.constant(random.standard_normal([9, 8], numpy.float32)), self.ids, ops.constant(0))
        table = ops.constant(random.standard_normal([40, 8], numpy.float32))
        if self.embedding == "learned":
            return ops.add(words, ops.gather(table, row, ops.constant(0)))
        if self.embedding == "learned with offset":
            return ops.add(words, ops.gather(table, ops.add(row, ops.constant(2)), ops.constant(0)))
        if self.embedding == "sliced counts":
            counts = ops.constant(numpy.arange(40, dtype=numpy.int64)[numpy.newaxis])
            ends = [ops.reshape(end, integers(1), False) for end in (self.past_length, self.end)]
            row = ops.slice(counts, *ends, integers(1), integers(1))
            types = ops.gather_elements(ops.constant(numpy.zeros([1, 40], numpy.int64)), row, 1)
            typed = ops.add(words, ops.gather(ops.constant(table.data[:2]), types, ops.constant(0)))
            return ops.add(typed, ops.gather(table, row, ops.constant(0)))
        if self.embedding == "vector":
            return ops.add(words, ops.gather(table, self.places, ops.constant(0)))
        if self.embedding in {"tiled rows", "broadcast vector"}:
            batch = ops.gather(ops.shape_of(self.ids), integers(0), ops.constant(0))
            copies = ops.concat([batch, integers(1)], 0)
            is_tiled = self.embedding == "tiled rows"
            rows = (
                ops.tile(row, copies)
                if is_tiled
                else ops.broadcast(self.places, copies, broadcast_spec="BIDIRECTIONAL")
            )
            return ops.add(words, ops.gather(table, ops.add(rows, ops.constant(2)), ops.constant(0)))
        if self.embedding == "unsqueezed rows":
            rows = ops.unsqueeze(ops.gather(table, self.places, ops.constant(0)), integers(0, 1))
            return ops.add(words, ops.squeeze(ops.multiply(rows, ops.constant(numpy.float32(2))), integers(1)))
        if self.embedding == "tables chosen by the length":
            others = numpy.concatenate([table.data[:1], -table.data[1:]])
            chosen = [ops.gather(ops.constant(each), row, ops.constant(0)) for each in (others, table.data)]
            return ops.add(words, ops.select(ops.greater(self.end, ops.constant(5)), *chosen))
        if self.embedding == "none":
            return words
        if self.embedding == "factor":
            blocks = ops.floor(ops.multiply(self.real(row), ops.constant(numpy.float32(0.5))))
            factor = ops.log(ops.add(blocks, ops.constant(numpy.float32(2))))
            return ops.multiply(words, ops.unsqueeze(factor, integers(2)))
        if self.embedding == "factors of a vector":
            blocks = ops.floor(ops.multiply(ops.convert(self.places, "f32"), ops.constant(numpy.float32([0.5]))))
            factor = ops.log(ops.add(blocks, ops.constant(numpy.float32([2]))))
            length = ops.reshape(
                ops.gather(ops.shape_of(self.ids), ops.constant(1), ops.constant(0)), integers(1), False
            )
            heads = ops.reshape(words, integers(0, 0, 2, 4), True)
            shape = ops.concat([integers(1), length, integers(1, 1)], 0)
            return ops.reshape(ops.multiply(heads, ops.reshape(factor, shape, False)), integers(0, 0, 8), True)
        if self.embedding == "indices of one number":
            return ops.add(words, ops.gather_nd(table, ops.unsqueeze(row, integers(-1))))
        if self.embedding == "flattened indices":
            rows = ops.gather(table, ops.reshape(ops.add(row, ops.constant(2)), integers(-1), False), ops.constant(0))
            return ops.add(words, ops.reshape(rows, integers(1, -1, 8), False))
        if self.embedding == "numbers of a table":
            columns = ops.tile(ops.unsqueeze(row, integers(2)), integers(1, 1, 8))
            return ops.add(words, ops.gather_elements(ops.constant(table.data[numpy.newaxis]), columns, 1))
        if self.embedding == "shared column":
            # As transformers' hybrids name it, too.
            self.column = ops.unsqueeze(row, integers(2))
            self.column.output(0).set_names({"position_ids"})
            return ops.add(words, ops.cos(ops.multiply(self.real(self.column), ops.constant(numpy.float32(0.3)))))
        if self.embedding == "repeated cosines":
            frequencies = ops.constant(numpy.array([0.1, 0.2, 0.3, 0.4], numpy.float32))
            cosines = ops.cos(ops.multiply(ops.unsqueeze(self.real(row), integers(1, 3)), frequencies))
            tiled = ops.tile(ops.unsqueeze(cosines, integers(4)), integers(1, 1, 1, 1, 2))
            return ops.add(words, ops.squeeze(ops.reshape(tiled, integers(1, 1, -1, 8), False), integers(1)))
        if self.embedding == "column at once":
            column = self.real(ops.unsqueeze(self.places, integers(0, 2)))
        else:
            column = ops.unsqueeze(self.real(row), integers(2))
        if self.embedding == "one row of kept length":
            column = ops.reshape(column, integers(1, 0, 1), True)
        frequency = ops.constant(numpy.float32(0.3))
        if self.embedding == "selected by the largest":
            largest = ops.reduce_max(row, integers(0, 1), False)
            is_long = ops.greater(largest, ops.constant(5))
            frequency = ops.select(is_long, ops.constant(numpy.float32(0.1)), frequency)
        angles = ops.multiply(column, frequency)
        return ops.add(words, ops.cos(ops.absolute(angles) if self.embedding == "unknown" else angles))

    def real(self, row: openvino.Node) -> openvino.Node:
        self.converted = ops.convert(row, "f32")
        return self.converted

    def mask(self, row: openvino.Node) -> openvino.Node:
        keys = ops.convert(ops.range(ops.constant(0), self.end, ops.constant(1), "i64"), "f32")
        if self.embedding == "shared column":
            queries = ops.convert(ops.unsqueeze(self.column, integers(1)), "f32")
        else:
            queries = self.converted if self.embedding == "shared" else ops.convert(row, "f32")
            queries = ops.unsqueeze(queries, integers(1, 3))
        seen = ops.less_equal(ops.unsqueeze(keys, integers(0, 1, 2)), queries)
        return ops.select(seen, ops.constant(numpy.float32(0)), ops.constant(numpy.float32(-65504)))


@pytest.mark.parametrize(
    ("embedding", "counted"),
    [
        *((one, "past") for one in ("learned", "learned with offset", "rotary", "shared", "shared column")),
        ("column at once", "past"),
        ("repeated cosines", "past"),
        ("numbers of a table", "past"),
        ("factor", "past"),
        ("factors of a vector", "past"),
        ("selected by the largest", "past"),
        ("tables chosen by the length", "past"),
        ("one row of kept length", "past"),
        ("flattened indices", "past"),
        ("indices of one number", "past"),
        ("sliced counts", "past"),
        ("vector", "past"),
        ("unsqueezed rows", "past"),
        ("tiled rows", "past"),
        ("broadcast vector", "past"),
        ("rotary", "mask"),
        ("learned with offset", "sum of the mask"),
    ],
)
def test_positions_of_each_embedding_are_exposed(embedding, counted):
    model = Counting(embedding, counted).build()
    after, result = exposed(model)
    assert result.changed
    given = random_inputs(after, length=4, past=3)
    given["input_ids"] %= 9
    if counted == "sum of the mask":
        given["attention_mask"][:] = 1
    without = {key: value for key, value in given.items() if key != "position_ids"}
    expected = infer(model.ov_model, without)
    for key, value in infer(after.ov_model, given).items():
        numpy.testing.assert_array_equal(value, expected[key])
    # Which positions the mask compares must not depend on the input.
    given["position_ids"][:] = 0
    moved = infer(after.ov_model, given)
    assert numpy.abs(moved["present.0.key"] - expected["present.0.key"]).max() > 0.05
    given["past_key_values.0.value"][:] = 0
    given["position_ids"][:, 1:] = 3
    first = infer(after.ov_model, given)["logits"][:, :, 0]
    given["position_ids"][:, 1:] = 9
    numpy.testing.assert_array_equal(infer(after.ov_model, given)["logits"][:, :, 0], first)


@pytest.mark.parametrize("embedding", ["selected by the largest", "tables chosen by the length"])
def test_the_largest_position_is_that_of_the_input(embedding):
    after, _ = exposed(Counting(embedding).build())
    (largest,) = after.graph.of_op("ReduceMax")
    assert after.graph.producer(largest.source()).name == "position_ids"


def test_an_inner_tensor_loses_the_name_of_the_input(tmp_path):
    after, _ = exposed(Counting("shared column").build())
    graphpass.save(after, tmp_path / "model.xml")
    assert any(port.name == "position_ids" for port in load(tmp_path / "model.xml").inputs)


def test_positions_read_by_a_mask_alone():
    _, result = exposed(Counting("none").build())
    assert not result.changed


def test_positions_counted_from_the_mask():
    """As lower-operators counts them."""
    passes = graphpass.parse("lower-operators,to-openvino,fuse-attention")
    model = PassManager(passes).run(onnx_model("llama", "onnx-genai")).model
    after, result = exposed(model)
    assert result.changed
    assert result.statistics == {"uses of positions": 2}
    assert any("position_ids" in port.get_names() for port in after.ov_model.inputs)
    assert compare(model, after, steps=3).passed


def without_positions(name):
    model = onnx_model(name)
    return openvino_after(model, *graphpass.get_target("cpu").pipeline(model))


@pytest.mark.parametrize("name", ["bloom", "falcon_alibi"])
def test_always_adds_position_ids(name, tmp_path):
    after, result = run_passes(without_positions(name), ExposePositionIds(always=True))
    assert result.changed
    port = next(port for port in after.inputs if port.name == "position_ids")
    assert (port.shape, port.element_type) == ((None, None), "i64")
    graphpass.save(after, tmp_path / "model.xml")
    expected = reference(name)
    model = compiled(graphpass.load(tmp_path / "model.xml").ov_model)
    assert any("position_ids" in port.get_names() for port in model.inputs)
    assert greedy(model.create_infer_request(), [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]
    assert not run_passes(after, ExposePositionIds(always=True))[1].changed


def test_models_with_unknown_counters_are_skipped():
    model = Counting("unknown").build()
    after, result = run_passes(model, ExposePositionIds(always=True))
    assert isinstance(result, Skipped)
    assert after.digest() == model.digest()


def test_gathers_of_onnx_are_read():
    """Rows of GatherND, which counts no batches there."""
    model = load(exporters("transformers-onnx", "olmo3"))
    result = run_once(model, "expose-position-ids").model
    assert "position_ids" in result.graph.parameters
    assert compare(model, result, steps=2).passed


def test_declared_shapes_of_one_row_are_removed():
    """Angles of counted positions are declared for one row, those of the input have a row for each sequence."""
    model = run_once(load(exporters("transformers-onnx", "llama")), "expose-position-ids").model
    angles = computed_by_positions(model)
    assert angles
    assert all(value.shape is not None and value.shape[0] != 1 for value in angles)
