"""change-precision: exports in f16 and bf16 run on the CPU plugin and in openvino.genai, their weights as stored."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy
import onnx
import openvino
import openvino_genai
import pytest
from onnx import numpy_helper
from openvino import Op, opset8, opset9, opset13 as ops
from support.cache_graphs import TinyDecoder
from support.decode import EXACT, compiled, fused_attention, greedy
from support.loaded import converted, exported, onnx_model, openvino_after
from support.models import export, reference
from support.pipelines import run_passes

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.names import all_ops
from graphpass.errors import UnsupportedError
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.change_precision import ChangePrecision
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.verify import compare

HALF = {"f16": openvino.Type.f16, "bf16": openvino.Type.bf16}


def widened(model: openvino.Model) -> tuple[openvino.Model, dict[str, int]]:
    """``model`` after the pass, which finds nothing more to do there, and its statistics."""
    after, result = run_passes(OpenVINOModel(model), ChangePrecision())
    assert result.changed
    again, told = run_passes(after, ChangePrecision())
    assert not told.changed
    assert again.digest() == after.digest()
    return after.ov_model, dict(result.statistics)


def computes_in(model: openvino.Model) -> set[str]:
    """The types of floating-point values that depend on an input or a variable."""
    depends: set[str] = set()
    types: set[str] = set()
    for op in all_ops(model):
        sources = {source.get_node().get_name() for source in op.input_values()}
        if op.get_type_name() in {"Parameter", "ReadValue", "RandomUniform"} or sources & depends:
            depends.add(op.get_name())
            types |= {port.get_element_type().to_string() for port in op.outputs() if port.get_element_type().is_real()}
    return types


def recast(source: onnx.ModelProto, old: int, new: int) -> onnx.ModelProto:
    """A copy of a model in which all that is of type ``old`` is of type ``new``."""
    proto = onnx.ModelProto.FromString(source.SerializeToString())
    del proto.graph.value_info[:]
    for info in (*proto.graph.input, *proto.graph.output):
        if info.type.tensor_type.elem_type == old:
            info.type.tensor_type.elem_type = new
    tensors = list(proto.graph.initializer)
    for attribute in (attribute for node in proto.graph.node for attribute in node.attribute):
        if attribute.type == onnx.AttributeProto.TENSOR:
            tensors.append(attribute.t)
        elif attribute.name == "to" and attribute.i == old:
            attribute.i = new
    for tensor in tensors:
        if tensor.data_type == old:
            values = numpy_helper.to_array(tensor).astype(onnx.helper.tensor_dtype_to_np_dtype(new))
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return proto


ONNX_TYPES = {"f16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}


@functools.cache
def llama(kind: str) -> OnnxModel:
    model = onnx_model("llama", "onnx-fp16")
    return model if kind == "f16" else OnnxModel(recast(model.proto, ONNX_TYPES["f16"], ONNX_TYPES[kind]))


def for_cpu(kind: str) -> OpenVINOModel:
    return converted(llama(kind)).model


@pytest.mark.parametrize("kind", ["f16", "bf16"])
class TestLlama:
    def test_the_model_computes_in_f32(self, kind):
        model = for_cpu(kind)
        assert computes_in(model.ov_model) == {"f32"}
        assert [(port.name, port.element_type) for port in model.outputs] == [("logits", "f32")]
        assert {variable.info.data_type for variable in model.ov_model.get_variables()} == {openvino.Type.f32}

    def test_names_and_shapes_stay(self, kind):
        before, _ = run_passes(llama(kind), ToOpenVINO())
        after, _ = run_passes(before, ChangePrecision())
        for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
            assert [(port.name, port.shape) for port in new] == [(port.name, port.shape) for port in old]
            assert kind not in {port.element_type for port in new}

    def test_generates_the_reference_tokens_in_f32(self, kind):
        expected = reference("llama")
        model = compiled(for_cpu(kind).ov_model)
        assert fused_attention(model) == 2
        assert greedy(model.create_infer_request(), [expected["prompt_ids"]] * 2, 12) == [expected["greedy_ids"]] * 2

    def test_the_result_equals_the_model_in_f32(self, kind):
        # ONNX Runtime on the same weights, cast to f32; this holds to f32's tolerance.
        in_f32 = OnnxModel(recast(llama(kind).proto, ONNX_TYPES[kind], onnx.TensorProto.FLOAT))
        comparison = compare(in_f32, for_cpu(kind))
        assert comparison.passed, comparison
        assert comparison.max_abs_difference < 1e-4

    def test_weights_are_written_in_their_stored_type(self, kind, tmp_path):
        graphpass.save(for_cpu(kind), tmp_path / "model.xml")
        written = openvino.Core().read_model(tmp_path / "model.xml")
        stored = {op.get_friendly_name(): op for op in written.get_ops() if op.get_type_name() == "Constant"}
        compared = 0
        for tensor in llama(kind).proto.graph.initializer:
            if tensor.data_type == ONNX_TYPES[kind] and numpy.prod(tensor.dims) > 16:
                constant = stored[tensor.name]
                assert constant.get_element_type() == HALF[kind]
                assert numpy.ravel(constant.data).tobytes() == numpy_helper.to_array(tensor).tobytes()
                (reader,) = constant.output(0).get_target_inputs()
                assert list(reader.get_node().get_rt_info().keys()) == ["decompression_0"]
                compared += 1
        assert compared == 19
        graphpass.save(converted(exported("llama/onnx")).model, tmp_path / "f32.xml")
        assert (tmp_path / "model.bin").stat().st_size < 0.55 * (tmp_path / "f32.bin").stat().st_size


def test_onnx_runtime_chooses_the_same_tokens_in_f16():
    assert compare(llama("f16"), for_cpu("f16")).passed


@pytest.mark.parametrize("backend", ["SDPA", "PA"])
def test_openvino_genai_generates_the_reference_tokens(tmp_path, backend):
    expected = reference("llama")
    graphpass.save(for_cpu("f16"), tmp_path / "openvino_model.xml")
    for file in export("llama", "ov-stateful").iterdir():
        if not file.name.startswith("openvino_model"):
            shutil.copy(file, tmp_path)
    pipeline = openvino_genai.LLMPipeline(tmp_path, "CPU", ATTENTION_BACKEND=backend, **EXACT)
    prompt = openvino.Tensor(numpy.array([expected["prompt_ids"]], dtype=numpy.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=12, ignore_eos=True)
    assert list(pipeline.generate(prompt, config).tokens[0]) == expected["greedy_ids"]


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("llama", "onnx"),
        ("llama", "ov-stateful"),
        ("llama", "ov-stateful-fp16"),
        ("llama", "ov-stateful-int8"),
        ("gemma3_text", "ov-stateless"),
        ("qwen3_next", "ov-stateful"),
        ("lfm2", "ov-stateful"),
    ],
)
def test_models_in_f32_are_unchanged(name, variant):
    model = exported(f"{name}/{variant}")
    model = openvino_after(model, ToOpenVINO()) if variant == "onnx" else model
    after, result = run_passes(model, ChangePrecision())
    assert not result.changed
    assert after.digest() == model.digest()


class TestVariables:
    def test_variables_of_llama_become_f32(self):
        before, _ = run_passes(llama("f16"), ToOpenVINO(), MakeStateful())
        after, result = run_passes(before, ChangePrecision())
        assert result.statistics["variables"] == 4
        ids = [{variable.info.variable_id for variable in model.ov_model.get_variables()} for model in (before, after)]
        assert ids[0] == ids[1]
        expected = reference("llama")
        for model, fused in ((after, 0), (run_passes(after, FuseAttention())[0], 2)):
            native = compiled(model.ov_model)
            assert fused_attention(native) == fused
            assert greedy(native.create_infer_request(), [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]

    @pytest.mark.parametrize("stateful", [True, False])
    def test_converted_variables_become_f32(self, stateful):
        """Caches of f16 in a model that computes in f32."""
        before = TinyDecoder(cache_type=openvino.Type.f16).build()
        if stateful:
            before, _ = run_passes(before, MakeStateful())
        after, result = run_passes(before, ChangePrecision())
        assert result.changed
        assert "Convert" not in {op.get_type_name() for op in conversions(after.ov_model)}
        prompts = [[1, 5, 9, 2, 7], [3, 3, 8, 1, 4]]
        first, second = (
            greedy(compiled(model.ov_model).create_infer_request(), prompts, 6) for model in (before, after)
        )
        assert first == second


def conversions(model: openvino.Model) -> list[openvino.Node]:
    """Converts that change nothing, or that have to do with f16 or bf16."""
    found = [op for op in all_ops(model) if op.get_type_name() == "Convert"]
    types = [{op.input(0).get_element_type(), op.output(0).get_element_type()} for op in found]
    return [op for op, both in zip(found, types, strict=True) if len(both) == 1 or both & set(HALF.values())]


def integers(*values: int) -> openvino.Node:
    return ops.constant(list(values), dtype=openvino.Type.i64)


def with_outputs(inputs: list[openvino.Node], *outputs: Any) -> openvino.Model:
    """A model whose inputs are called x0, x1 .., and whose outputs y0, y1 .."""
    for letter, ports in (("x", inputs), ("y", outputs)):
        for number, port in enumerate(ports):
            output = port if isinstance(port, openvino.Output) else port.output(0)
            output.set_names({f"{letter}{number}"})
    return openvino.Model([ops.result(output) for output in outputs], inputs, "small")


def ports(model: openvino.Model) -> dict[str, str]:
    return {name: port.get_element_type().to_string() for port in model.outputs for name in port.get_names()}


def infer(model: openvino.Model, *values: numpy.ndarray) -> list[numpy.ndarray]:
    native = compiled(model)
    feeds = [
        value.astype(port.get_element_type().to_dtype()) for port, value in zip(native.inputs, values, strict=True)
    ]
    results = native(feeds)
    return [results[port] for port in native.outputs]


RANDOM = numpy.random.default_rng(0)


class TestConstants:
    @pytest.mark.parametrize("kind", HALF)
    def test_small_constants_become_f32_exactly(self, kind):
        lowest = {"f16": -65504.0, "bf16": -3.3895313892515355e38}[kind]
        values = numpy.array([-numpy.inf, lowest, 0.1, numpy.nan, 6e-8], numpy.float32)
        constant = ops.constant(values, dtype=HALF[kind])
        exact = constant.get_data(dtype=numpy.float32)
        assert exact[1] == numpy.float32(lowest)
        parameter = ops.parameter([5], HALF[kind])
        after, counts = widened(with_outputs([parameter], ops.maximum(parameter, constant)))
        assert counts == {"inputs": 1, "constants": 1}
        (found,) = [op for op in after.get_ops() if op.get_type_name() == "Constant"]
        numpy.testing.assert_array_equal(found.data, exact)
        assert found.data.dtype == numpy.float32

    @pytest.mark.parametrize("shape", [[], [1], [0, 3], [2, 1, 4]])
    def test_shapes_stay(self, shape):
        parameter = ops.parameter([2, 3, 4][: len(shape)], HALF["f16"])
        constant = ops.constant(numpy.ones(shape, numpy.float16))
        after, _ = widened(with_outputs([parameter], ops.convert_like(constant, parameter), ops.relu(parameter)))
        assert list(after.outputs[0].get_shape()) == shape

    def test_one_convert_for_all_readers(self):
        weight = ops.constant(RANDOM.standard_normal((8, 8)).astype(numpy.float16))
        parameter = ops.parameter([2, 8], HALF["f16"])
        model = with_outputs([parameter], ops.matmul(parameter, weight, False, False), ops.gather(weight, [1], 0))
        after, counts = widened(model)
        assert counts == {"inputs": 1, "weights": 1}
        given = RANDOM.standard_normal((2, 8)).astype(numpy.float16).astype(numpy.float32)
        matrix = weight.data.astype(numpy.float32)
        for found, value in zip(infer(after, given), (given @ matrix, matrix[1:2]), strict=True):
            numpy.testing.assert_allclose(found, value, atol=1e-4)

    def test_the_cpu_plugin_keeps_weights_compressed(self):
        for transposed in (False, True):
            weight: Any = ops.constant(RANDOM.standard_normal((64, 64)).astype(numpy.float16))
            if transposed:
                weight = ops.transpose(weight, integers(1, 0))
            parameter = ops.parameter([-1, 64], HALF["f16"])
            after, _ = widened(with_outputs([parameter], ops.matmul(parameter, weight, False, True)))
            assert ("f16", [64, 64]) in constants_at_run_time(after)

    def test_constants_used_in_f16_and_f32(self):
        weight = ops.transpose(ops.constant(RANDOM.standard_normal((8, 8)).astype(numpy.float16)), integers(1, 0))
        scaled = ops.multiply(weight, ops.constant(numpy.full((8, 8), 0.5, numpy.float16)))
        x, y = ops.parameter([2, 8], HALF["f16"]), ops.parameter([2, 8], openvino.Type.f32)
        wide = ops.matmul(y, ops.convert(scaled, "f32"), False, False)
        before = with_outputs([x, y], ops.matmul(x, weight, False, False), wide)
        given = [RANDOM.standard_normal((2, 8)) for _ in range(2)]
        expected = infer(before, *given)
        after, counts = widened(before)
        assert counts == {"inputs": 1, "weights": 1}
        for found, value in zip(infer(after, *given), expected, strict=True):
            numpy.testing.assert_allclose(found, value, atol=2e-2)

    @pytest.mark.parametrize("element_type", ["i8", "u8", "i4", "u4"])
    @pytest.mark.parametrize("grouped", [False, True])
    def test_quantized_weights_keep_the_form_of_nncf(self, element_type, grouped):
        shape, scales = ([64, 2, 32], [64, 2, 1]) if grouped else ([64, 64], [64, 1])
        low, high = (-7, 8) if element_type.startswith("i") else (0, 15)
        kind = getattr(openvino.Type, element_type)
        weight = ops.convert(ops.constant(RANDOM.integers(low, high, shape).astype(numpy.int8), dtype=kind), "f16")
        if low == 0:
            zeros = RANDOM.integers(low, high, scales).astype(numpy.int8)
            weight = ops.subtract(weight, ops.convert(ops.constant(zeros, dtype=kind), "f16"))
        weight = ops.multiply(weight, ops.constant((RANDOM.random(scales) / 50).astype(numpy.float16)))
        if grouped:
            weight = ops.reshape(weight, integers(64, 64), False)
        parameter = ops.parameter([-1, 64], HALF["f16"])
        before = with_outputs([parameter], ops.matmul(parameter, weight, False, True))
        after, counts = widened(before.clone())
        assert counts == {"inputs": 1, "quantized weights": 1}
        (product,) = [op for op in after.get_ops() if op.get_type_name() == "MatMul"]
        convert = product.input_value(1).get_node()
        assert convert.get_type_name() == "Convert"
        assert not list(convert.get_rt_info().keys())
        assert convert.input_value(0).get_node().get_type_name() == weight.get_type_name()
        assert (element_type, [64, 64]) in constants_at_run_time(after)
        given = RANDOM.standard_normal((3, 64))
        numpy.testing.assert_allclose(infer(after, given), infer(before, given), atol=2e-2)


def constants_at_run_time(model: openvino.Model) -> list[tuple[str, list[int]]]:
    """Types and shapes of the constants that the CPU plugin holds."""
    infos = [(op.get_rt_info(), op) for op in compiled(model).get_runtime_model().get_ops()]
    constants = [(info, op) for info, op in infos if info["layerType"].astype(str) == "Const"]
    return [(info["outputPrecisions"].astype(str), list(op.get_output_shape(0))) for info, op in constants]


class Half(Op):
    """An operator that gives f16 whatever it takes."""

    class_type_info = openvino.DiscreteTypeInfo("Half", "extension")

    def __init__(self, source: Any) -> None:
        super().__init__(self, [source])

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, openvino.Type.f16, self.get_input_partial_shape(0))

    def clone_with_new_inputs(self, inputs: Any) -> Half:
        return Half(*inputs)

    def get_type_info(self) -> Any:
        return Half.class_type_info


class TestOperators:
    @pytest.mark.parametrize("kind", HALF)
    def test_operators_with_a_type_attribute(self, kind):
        size = ops.parameter([], openvino.Type.i64)
        zero, one = ops.constant(0.0, dtype=HALF[kind]), ops.constant(1.0, dtype=HALF[kind])
        outputs = [
            ops.range(0, size, 1, kind),
            opset9.eye(size, size, ops.constant(0), kind),
            ops.random_uniform([3], zero, one, kind),
            ops.convert(size, kind),
        ]
        after, _ = widened(with_outputs([size], *outputs))
        assert ports(after) == dict.fromkeys(("y0", "y1", "y2", "y3"), "f32")
        assert infer(after, numpy.array(3))[0].tolist() == [0, 1, 2]

    def test_redundant_converts_are_removed(self):
        x = ops.parameter([2, 4], HALF["f16"])
        scores = ops.softmax(ops.convert(ops.add(x, x), "f32"), 1)
        back = ops.convert_like(scores, x)
        after, counts = widened(with_outputs([x], ops.relu(back), ops.convert(ops.sigmoid(scores), "f16")))
        assert counts == {"inputs": 1, "operators": 1, "converts gone": 3}
        assert sorted(op.get_type_name() for op in after.get_ordered_ops()) == sorted(
            ["Parameter", "Add", "Softmax", "Relu", "Sigmoid", "Result", "Result"]
        )
        assert ports(after) == {"y0": "f32", "y1": "f32"}

    def test_names_of_an_input_and_of_two_outputs_stay_apart(self):
        x = ops.parameter([2, 4], HALF["f16"])
        y = ops.relu(x)
        after, _ = widened(with_outputs([x], ops.convert(x, "f32"), y, ops.convert(y, "f32"), ops.constant(HALF_ROW)))
        assert [port.get_names() for port in after.inputs] == [{"x0"}]
        assert [port.get_names() for port in after.outputs] == [{"y0"}, {"y1"}, {"y2"}, {"y3"}]
        assert set(ports(after).values()) == {"f32"}
        given = RANDOM.standard_normal((2, 4)).astype(numpy.float32)
        for found, value in zip(infer(after, given), (given, given.clip(0), given.clip(0), HALF_ROW), strict=True):
            numpy.testing.assert_array_equal(found, value)

    def test_integers_and_booleans_stay(self):
        x, n = ops.parameter([2, 4], HALF["f16"]), ops.parameter([4], openvino.Type.i32)
        model = with_outputs([x, n], ops.convert(x, "i64"), ops.less(x, x), ops.add(n, n), ops.shape_of(x, "i32"))
        after, _ = widened(model)
        assert ports(after) == {"y0": "i64", "y1": "boolean", "y2": "i32", "y3": "i32"}

    def test_operators_with_f16_results_are_refused(self):
        x = ops.parameter([2, 4], HALF["f16"])
        model = OpenVINOModel(with_outputs([x], Half(x.output(0))))
        before = model.digest()
        with pytest.raises(UnsupportedError, match=r"GP327: pass change-precision: Half .* for any type of its inputs"):
            run_passes(model, ChangePrecision())
        assert model.digest() == before


HALF_ROW = numpy.arange(20, dtype=numpy.float16)


@pytest.mark.parametrize("kind", HALF)
class TestBodies:
    def test_bodies_of_if_become_f32(self, kind):
        x, chosen = ops.parameter([-1, 4], HALF[kind]), ops.parameter([], openvino.Type.boolean)
        bodies, inner = [], []
        for factor in (2.0, 3.0):
            parameter = ops.parameter([-1, 4], HALF[kind])
            product = ops.convert(
                ops.multiply(ops.convert(parameter, "f32"), ops.constant(numpy.float32(factor))), kind
            )
            bodies.append(openvino.Model([ops.result(product)], [parameter], "body"))
            inner.append(parameter)
        choice = opset8.if_op(chosen.output(0))
        choice.set_then_body(bodies[0])
        choice.set_else_body(bodies[1])
        choice.set_input(x.output(0), *inner)
        output = choice.set_output(bodies[0].get_results()[0], bodies[1].get_results()[0])
        after, counts = widened(with_outputs([x, chosen], output))
        assert counts == {"inputs": 1, "operators": 2, "converts gone": 4}
        assert not conversions(after)
        assert computes_in(after) == {"f32"}
        given = RANDOM.standard_normal((3, 4)).astype(numpy.float32)
        for value, factor in ((True, 2), (False, 3)):
            numpy.testing.assert_allclose(infer(after, given, numpy.array(value))[0], given * factor, rtol=1e-6)

    @pytest.mark.parametrize("start", ["input", "constant"])
    def test_bodies_of_loop_become_f32(self, kind, start):
        iteration, state = ops.parameter([], openvino.Type.i64), ops.parameter([2, 20], HALF[kind])
        piece = ops.parameter([2, 1], HALF[kind])
        weight = ops.constant(RANDOM.standard_normal((20, 20)), dtype=HALF[kind])
        state_after = ops.add(ops.matmul(state, weight, False, False), piece)
        total = ops.reduce_sum(state_after, integers(0), True)
        body_results = [ops.result(node) for node in (ops.constant(True), state_after, total)]
        body = openvino.Model(body_results, [iteration, state, piece], "body")
        x, pieces = ops.parameter([2, 20], HALF[kind]), ops.parameter([2, -1], HALF[kind])
        first = x if start == "input" else ops.constant(RANDOM.standard_normal((2, 20)), dtype=HALF[kind])
        loop = opset8.loop(integers(3).output(0), ops.constant(True).output(0))
        loop.set_function(body)
        loop.set_special_body_ports([0, 0])
        loop.set_merged_input(state, first.output(0), state_after.output(0))
        loop.set_sliced_input(piece, pieces.output(0), 0, 1, 1, -1, 1)
        outputs = [loop.get_iter_value(state_after.output(0), -1)]
        outputs.append(loop.get_concatenated_slices(total.output(0), 0, 1, 1, -1, 0))
        after, counts = widened(with_outputs([x, pieces], *outputs))
        assert counts["weights"] == 1 + (start == "constant")
        assert computes_in(after) == {"f32"}
        given = [RANDOM.standard_normal(shape).astype(numpy.float32) for shape in ((2, 20), (2, 3))]
        expected = given[0] if start == "input" else first.get_data(dtype=numpy.float32)
        totals = []
        for number in range(3):
            expected = expected @ weight.get_data(dtype=numpy.float32) + given[1][:, number : number + 1]
            totals.append(expected.sum(0))
        for found, value in zip(infer(after, *given), (expected, totals), strict=True):
            numpy.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-3)


def test_output_is_deterministic(tmp_path: Path) -> None:
    for name in ("one", "two"):
        model, _ = run_passes(llama("f16"), ToOpenVINO(), ChangePrecision())
        graphpass.save(model, tmp_path / f"{name}.xml")
    for ending in ("xml", "bin"):
        assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()
