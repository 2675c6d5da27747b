"""fuse-attention on attention with a sink: the numbers, and what the plugins make of it."""

from __future__ import annotations

import dataclasses

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import (
    HEADS,
    Form,
    Mask,
    Scale,
    Sink,
    Sizes,
    build,
    check,
    dropped,
    fused,
    infer,
    integers,
)
from support.decode import EXACT

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful

SHAPES = [(1, HEADS, 1, 1), (HEADS, 1, 1), (1, 1, 1, 1), (1,), ()]
SIZE = 8


def attention(model: openvino.Model) -> openvino.Node:
    (found,) = [op for op in model.get_ops() if op.get_type_name() == "ScaledDotProductAttention"]
    return found


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sinks_of_any_shape_compute_the_same(shape, is_input, shifted):
    form = Form(masks=(Mask(),), past=True, groups=2, sink=Sink(shape, is_input=is_input), shifted=shifted)
    check(form, Sizes())
    after, _, _ = fused(build(form))
    assert list(attention(after).get_input_shape(5)) == [1, HEADS, 1, 1]


@pytest.mark.parametrize("drop", ["Slice", "StridedSlice", "VariadicSplit"])
@pytest.mark.parametrize("column", ["first", "last"])
@pytest.mark.parametrize(
    "masks", [(), (Mask("11LS", "keep", -65504.0), Mask("B11S", "chosen"))], ids=["plain", "masked"]
)
def test_dropped_columns_compute_the_same(column, drop, masks):
    counts = check(Form(masks=masks, sink=Sink(column=column, drop=drop)), Sizes())
    assert not counts["Concat"] + counts[drop]


@pytest.mark.parametrize("wide", [False, True])
def test_sinks_in_f16_stay_f16(wide):
    form = Form((Scale(0.3),), (Mask(),), past=True, element_type="f16", softmax_type="f32", wide_scores=wide)
    form = dataclasses.replace(form, sink=Sink(), shifted=True)
    check(form, Sizes(), tolerance=5e-3)
    after, _, _ = fused(build(form))
    assert {port.get_element_type().to_string() for port in attention(after).input_values()} == {"f16"}


def test_rows_without_visible_keys_are_zero():
    """Unlike without a sink, which takes the whole of what positions get elsewhere."""
    form = Form(masks=(Mask("11LS", "keep"),), sink=Sink())
    after, _, _ = fused(build(form))
    random = numpy.random.default_rng(0)
    given = {name: random.standard_normal([1, HEADS, 3, SIZE], numpy.float32) for name in ("query", "key", "value")}
    given["mask_0"] = numpy.array([[[[True] * 3, [False] * 3, [True] * 3]]])
    found = infer(after, given)["attended"]
    numpy.testing.assert_array_equal(found[:, :, 1], 0)
    assert found[:, :, 0].any()


class Decoder:
    """One layer as GPT-OSS exports it: the heads of the query are not known from its shape."""

    def __init__(self, kv_heads: int = HEADS, sink: tuple[int, ...] = (1, HEADS, 1, 1)) -> None:
        self.inputs: list[openvino.Node] = []
        self.results: list[openvino.Node] = []
        self.kv_heads = kv_heads
        self.hidden = self.input("hidden", [-1, -1, HEADS * SIZE])
        query, key, value = self.projected(0, -1), self.cached("key", 1), self.cached("value", 2)
        scores = ops.matmul(query, ops.transpose(key, integers(0, 1, 3, 2)), False, False)
        scores = ops.add(ops.multiply(scores, numpy.float32(0.3)), self.mask())
        rows = ops.shape_of(ops.reduce_max(scores, integers(-1), True))
        learned = ops.constant(numpy.linspace(-1, 2, int(numpy.prod(sink))).reshape(sink), dtype=openvino.Type.f32)
        scores = ops.concat([scores, ops.broadcast(learned, rows)], 3)
        scores = ops.subtract(scores, ops.reduce_max(scores, integers(-1), True))
        product = ops.matmul(dropped(ops.softmax(scores, -1), Sink()), value, False, False)
        product.output(0).set_names({"attended"})
        self.model = OpenVINOModel(openvino.Model([*self.results, ops.result(product)], self.inputs))

    def input(self, name: str, shape: list[int], kind: openvino.Type = openvino.Type.f32) -> openvino.Node:
        node = ops.parameter(openvino.PartialShape(shape), kind)
        node.set_friendly_name(name)
        node.output(0).set_names({name})
        self.inputs.append(node)
        return node

    def projected(self, seed: int, heads: int) -> openvino.Node:
        weights = numpy.random.default_rng(seed).standard_normal([HEADS * SIZE, HEADS * SIZE]) / 6
        made = ops.matmul(self.hidden, ops.constant(weights, dtype=openvino.Type.f32), False, False)
        # Shape inference does not see through this: the heads are known only where they are written down.
        outer = ops.gather(ops.shape_of(made), integers(0, 1), integers(0))
        split = ops.reshape(made, ops.concat([outer, integers(heads, SIZE)], 0), special_zero=False)
        return ops.transpose(split, integers(0, 2, 1, 3))

    def cached(self, name: str, seed: int) -> openvino.Node:
        past = self.input(f"past_key_values.0.{name}", [-1, self.kv_heads, -1, SIZE])
        whole = ops.concat([past, self.projected(seed, self.kv_heads)], 2)
        whole.output(0).set_names({f"present.0.{name}"})
        self.results.append(ops.result(whole))
        return whole

    def mask(self) -> openvino.Node:
        seen = self.input("attention_mask", [-1, -1], openvino.Type.i64)
        condition = ops.unsqueeze(ops.convert(seen, "boolean"), integers(1, 2))
        return ops.select(condition, numpy.float32(0), numpy.float32(-3e38))


def feeds(past: dict[str, numpy.ndarray], length: int) -> dict[str, numpy.ndarray]:
    """Two sequences, the first padded by one on the left; ``past`` is what an earlier step gave."""
    random = numpy.random.default_rng(length)
    names = ("past_key_values.0.key", "past_key_values.0.value")
    given = past or {name: numpy.zeros([2, HEADS, 0, SIZE], numpy.float32) for name in names}
    hidden = random.standard_normal([2, length, HEADS * SIZE], numpy.float32)
    mask = numpy.ones([2, given[names[0]].shape[2] + length], numpy.int64)
    mask[0, 0] = 0
    return {**given, "hidden": hidden, "attention_mask": mask}


@pytest.fixture(scope="module")
def decoders() -> tuple[OpenVINOModel, OpenVINOModel]:
    """Before and after."""
    before = Decoder().model
    after = PassManager([FuseAttention()]).run(before).model
    assert isinstance(after, OpenVINOModel)
    return before, after


def test_unknown_heads_of_the_query(decoders):
    before, after = decoders
    given = feeds({}, 4)
    expected, found = infer(before.ov_model, given), infer(after.ov_model, given)
    numpy.testing.assert_allclose(found["attended"], expected["attended"], atol=1e-6)
    block = attention(after.ov_model)
    # Otherwise SDPAToPagedAttention drops the sink without a word.
    assert block.get_input_partial_shape(0)[1] == block.get_input_partial_shape(5)[1] == HEADS


def test_the_cpu_plugin_fuses_sinks_with_the_cache(decoders):
    before, after = decoders
    stateful = PassManager([MakeStateful()]).run(after).model
    assert isinstance(stateful, OpenVINOModel)
    compiled = openvino.Core().compile_model(stateful.ov_model, "CPU", EXACT)
    kinds = [op.get_rt_info()["layerType"].astype(str) for op in compiled.get_runtime_model().get_ops()]
    assert "Softmax" not in kinds
    assert kinds.count("ScaledDotProductAttention") == 1
    request = compiled.create_infer_request()
    request.reset_state()
    known = {name for port in compiled.inputs for name in port.get_names()}
    past: dict[str, numpy.ndarray] = {}
    for length in (3, 1, 2):
        given = feeds(past, length)
        expected = infer(before.ov_model, given)
        given["beam_idx"] = numpy.arange(2, dtype=numpy.int32)
        found = request.infer({name: value for name, value in given.items() if name in known})["attended"]
        numpy.testing.assert_allclose(found, expected["attended"], atol=1e-5)
        past = {f"past_key_values.0.{name}": expected[f"present.0.{name}"] for name in ("key", "value")}


def test_an_unknown_number_of_heads_is_left():
    decoder = Decoder(kv_heads=-1, sink=(1, 1, 1, 1))
    (record,) = PassManager([FuseAttention()]).run(decoder.model).records
    assert "the number of heads of its attention sink " in record.result.notes[0]
    assert " is unknown" in record.result.notes[0]
    after = PassManager([FuseAttention()]).run(Decoder(kv_heads=-1).model).model
    assert isinstance(after, OpenVINOModel)
    assert attention(after.ov_model).get_input_size() == 6
