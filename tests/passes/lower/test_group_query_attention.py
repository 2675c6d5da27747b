"""Lowering group-query-attention: the same numbers as ONNX Runtime's operator, with all its options."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.convert.change_precision import ChangePrecision
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.lower.lower_operators import LowerOperators

FULL = numpy.ones([2, 5], numpy.int64)
RIGHT = numpy.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
LEFT = numpy.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])

POSITIONS = 64


@dataclass(frozen=True)
class Form:
    """Attributes and inputs of the operator."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    packed: bool = False
    rotary: bool = True
    rotary_dim: int = 16
    interleaved: bool = False
    window: int = -1
    softcap: float = 0.0
    scale: float = 0.0
    sink: bool = False
    smooth: bool = False
    bias: bool = False
    positions: bool = False
    lengths: str = "mask"
    batch: int | str = "batch"
    opset: int = 17


def build(form: Form, **given: object) -> OnnxModel:
    """Inputs hidden, attention_mask, past_key, past_value [, bias, position_ids]; outputs attended and presents.

    ``given`` are further attributes.
    """
    random = numpy.random.default_rng(3)
    width = 32
    sizes = [form.heads * form.head_dim, form.kv_heads * form.head_dim, form.kv_heads * form.head_dim]
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, numpy.ndarray] = {}
    if form.packed:
        weights["weight_qkv"] = random.standard_normal([width, sum(sizes)])
        nodes.append(helper.make_node("MatMul", ["hidden", "weight_qkv"], ["qkv"]))
        operands = ["qkv", "", ""]
    else:
        operands = ["query", "key", "value"]
        for name, size in zip(operands, sizes, strict=True):
            weights[f"weight_{name}"] = random.standard_normal([width, size])
            nodes.append(helper.make_node("MatMul", ["hidden", f"weight_{name}"], [name]))
    inputs = [tensor_info("hidden", [form.batch, "length", width])]
    if form.lengths == "mask":
        inputs.append(tensor_info("attention_mask", [form.batch, "total"], TensorProto.INT64))
        nodes += [
            helper.make_node("Constant", [], ["one"], value_ints=[1]),
            helper.make_node("Constant", [], ["place"], value_int=1),
            helper.make_node("ReduceSum", ["attention_mask", "one"], ["sum"], keepdims=0),
            helper.make_node("Sub", ["sum", "one"], ["less"]),
            helper.make_node("Cast", ["less"], ["seqlens_k"], to=TensorProto.INT32),
            helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
            helper.make_node("Gather", ["mask_shape", "place"], ["columns"]),
            helper.make_node("Cast", ["columns"], ["total_sequence_length"], to=TensorProto.INT32),
        ]
    else:
        inputs.append(tensor_info("seqlens_k", [form.batch], TensorProto.INT32))
        inputs.append(tensor_info("total_sequence_length", [], TensorProto.INT32))
    past = [form.batch, form.kv_heads, "past", "head_dim"]
    inputs += [tensor_info("past_key", past), tensor_info("past_value", past)]
    operands += ["past_key", "past_value", "seqlens_k", "total_sequence_length"]
    if form.rotary:
        angles = random.uniform(0, 6, [POSITIONS, form.rotary_dim // 2])
        weights |= {"cos": numpy.cos(angles), "sin": numpy.sin(angles)}
    operands += ["cos", "sin"] if form.rotary else ["", ""]
    operands += ["position_ids" if form.positions else "", "bias" if form.bias else "", "sink" if form.sink else ""]
    if form.positions:
        inputs.append(tensor_info("position_ids", [form.batch, "length"], TensorProto.INT64))
    if form.bias:
        inputs.append(tensor_info("bias", [1, form.heads, "length", "total"]))
    if form.sink:
        weights["sink"] = random.standard_normal([form.heads])
    while not operands[-1]:
        operands.pop()
    nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            operands,
            ["attended", "present_key", "present_value"],
            name="gqa",
            domain="com.microsoft",
            num_heads=form.heads,
            kv_num_heads=form.kv_heads,
            do_rotary=int(form.rotary),
            rotary_interleaved=int(form.interleaved),
            local_window_size=form.window,
            softcap=form.softcap,
            smooth_softmax=int(form.smooth),
            **({"scale": form.scale} if form.scale else {}),
            **given,
        )
    )
    present = [form.batch, form.kv_heads, "total", "head_dim"]
    outputs = [tensor_info("attended", [form.batch, "length", sizes[0]])]
    outputs += [tensor_info("present_key", present), tensor_info("present_value", present)]
    held = [numpy_helper.from_array(array.astype(numpy.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "grouped_query", inputs, outputs, held)
    opsets = [helper.make_opsetid("", form.opset), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def tensor_info(name: str, shape: list[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


class Decoder:
    """Runs such a model step by step on ONNX Runtime, each with caches of its own."""

    def __init__(self, form: Form, model: OnnxModel) -> None:
        self._form = form
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._caches: dict[str, numpy.ndarray] = {}

    def step(self, hidden: numpy.ndarray, mask: numpy.ndarray) -> numpy.ndarray:
        """What attention gives for new tokens; ``mask`` covers the earlier ones, too."""
        form, (batch, length) = self._form, hidden.shape[:2]
        empty = numpy.zeros([batch, form.kv_heads, 0, form.head_dim], numpy.float32)
        given = {
            "hidden": hidden,
            "attention_mask": mask,
            "seqlens_k": (mask.sum(1) - 1).astype(numpy.int32),
            "total_sequence_length": numpy.array(mask.shape[1], numpy.int32),
            "past_key": self._caches.get("past_key", empty),
            "past_value": self._caches.get("past_value", empty),
            "position_ids": numpy.maximum(mask.cumsum(1) - 1, 0)[:, -length:],
            "bias": bias_of(form, mask.shape[1])[:, :, -length:],
        }
        names = {info.name for info in self._session.get_inputs()}
        attended, key, value = self._session.run(
            ["attended", "present_key", "present_value"], {name: given[name] for name in names}
        )
        self._caches = {"past_key": key, "past_value": value}
        return attended


def bias_of(form: Form, total: int) -> numpy.ndarray:
    """The same number for a pair of positions at every step."""
    whole = numpy.random.default_rng(4).standard_normal([1, form.heads, POSITIONS, POSITIONS])
    return whole[:, :, :total, :total].astype(numpy.float32)


def trajectory(form: Form, model: OnnxModel, mask: numpy.ndarray, steps: int) -> list[numpy.ndarray]:
    """What attention gives for the real tokens of a prompt with this mask and of ``steps`` steps after it."""
    random = numpy.random.default_rng(5)
    decoder = Decoder(form, model)
    found = []
    for step in range(steps + 1):
        length = mask.shape[1] if step == 0 else 1
        hidden = random.standard_normal([len(mask), length, 32]).astype(numpy.float32)
        if step:
            mask = numpy.concatenate([mask, numpy.ones([len(mask), 1], numpy.int64)], axis=1)
        found.append(decoder.step(hidden, mask)[mask[:, -length:] != 0])
    return found


def lowered(model: Model) -> OnnxModel:
    result = PassManager([LowerOperators()]).run(model)
    assert result.records[0].result.changed
    assert isinstance(result.model, OnnxModel)
    return result.model


def check(form: Form, mask: numpy.ndarray, steps: int = 8) -> None:
    model = build(form)
    expected, found = (trajectory(form, one, mask, steps) for one in (model, lowered(model)))
    for want, got in zip(expected, found, strict=True):
        numpy.testing.assert_allclose(got, want, atol=5e-4, rtol=1e-4)


OPTIONS = [
    Form(),
    Form(packed=True),
    Form(interleaved=True),
    Form(rotary=False),
    Form(head_dim=32),
    Form(head_dim=32, interleaved=True, packed=True),
    Form(heads=4, kv_heads=4),
    Form(heads=6, kv_heads=1),
    Form(window=3),
    Form(window=1),
    Form(softcap=2.0),
    Form(scale=0.7),
    Form(sink=True),
    Form(smooth=True),
    Form(positions=True),
    Form(sink=True, window=3, softcap=1.0),
    Form(opset=13),
    Form(opset=21),
]


@pytest.mark.parametrize("mask", [FULL, RIGHT], ids=["full", "right"])
@pytest.mark.parametrize("form", OPTIONS, ids=str)
def test_onnx_runtime_computes_the_same(form, mask):
    check(form, mask)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_bias_is_added_after_the_soft_cap(softcap):
    check(Form(bias=True, softcap=softcap), FULL)


@settings(deadline=None, max_examples=40)
@given(
    form=st.builds(
        lambda groups, kv_heads, **given: Form(heads=groups * kv_heads, kv_heads=kv_heads, **given),
        st.integers(1, 3),
        kv_heads=st.integers(1, 3),
        head_dim=st.sampled_from([16, 32]),
        packed=st.booleans(),
        rotary=st.booleans(),
        interleaved=st.booleans(),
        window=st.sampled_from([-1, 1, 2, 4]),
        softcap=st.sampled_from([0.0, 3.0]),
        scale=st.sampled_from([0.0, 0.2]),
        sink=st.booleans(),
        smooth=st.booleans(),
    ),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_any_options_and_lengths_compute_the_same(form, lengths):
    mask = numpy.array([[1] * length + [0] * (max(lengths) - length) for length in lengths])
    check(form, mask, steps=3)


@pytest.mark.parametrize("form", [Form(), Form(window=3), Form(sink=True)], ids=str)
def test_padding_in_front_changes_nothing(form):
    """ONNX Runtime's operator takes it for tokens; the mask says better."""
    model = lowered(build(form))
    random = numpy.random.default_rng(8)

    batch, alone = Decoder(form, model), Decoder(form, model)
    hidden = random.standard_normal([2, 5, 32]).astype(numpy.float32)
    mask = LEFT
    numpy.testing.assert_allclose(
        batch.step(hidden, mask)[1, 2:], alone.step(hidden[1:, 2:], mask[1:, 2:])[0], atol=5e-4
    )
    for _ in range(4):
        hidden = random.standard_normal([2, 1, 32]).astype(numpy.float32)
        mask = numpy.concatenate([mask, numpy.ones([2, 1], numpy.int64)], 1)
        numpy.testing.assert_allclose(batch.step(hidden, mask)[1], alone.step(hidden[1:], mask[1:, 2:])[0], atol=5e-4)


def test_lengths_without_a_mask_support_a_batch_of_one():
    form = Form(lengths="input", batch=1)
    check(form, numpy.ones([1, 5], numpy.int64))


def test_a_buffer_of_fixed_size_becomes_a_growing_cache():
    model = build(Form())
    for info in [*model.proto.graph.input[2:], *model.proto.graph.output[1:]]:
        info.type.tensor_type.shape.dim[2].dim_value = 64
    after = lowered(model)
    assert after.inputs[2].shape == ("batch", 2, "past_sequence_length", 16)
    assert after.outputs[1].shape == ("batch", 2, "total_sequence_length", 16)


@pytest.mark.parametrize("form", [Form(head_dim=32, rotary=False), Form(scale=0.3, softcap=1.7, rotary=False)], ids=str)
def test_scale_and_soft_cap_are_not_rounded_in_f16(form):
    model = PassManager([ChangePrecision(to="f16")]).run(build(form)).model
    result = PassManager([LowerOperators(), ToOpenVINO(), ChangePrecision()]).run(model).model
    graph = result.graph
    factors = {
        float(elements)
        for node in graph.of_op("Multiply", "Divide")
        for value in node.sources
        if (elements := graph.constant(value)) is not None and elements.size == 1
    }
    wanted = [form.scale or form.head_dim**-0.5, *([form.softcap] if form.softcap else [])]
    assert {float(numpy.float32(number)) for number in wanted} <= factors


def test_a_second_run_changes_nothing():
    once = lowered(build(Form()))
    result = PassManager([LowerOperators()]).run(once)
    assert not result.records[0].result.changed


class TestRefusals:
    def refused(self, model: OnnxModel, match: str) -> None:
        with pytest.raises(UnsupportedError, match=match) as failure:
            PassManager([LowerOperators()]).run(model)
        assert failure.value.id in {"GP340", "GP341"}
        assert "gqa" in failure.value.message

    def test_lengths_from_an_input_are_refused(self):
        self.refused(build(Form(lengths="input")), "seqlens_k, is not the sum of an attention mask")

    @pytest.mark.parametrize(("name", "value"), [("qk_output", 1), ("kv_cache_bit_width", 8)])
    def test_unsupported_attributes_are_refused(self, name, value):
        self.refused(build(Form(window=3), **{name: value}), f"it has {name} = {value}")

    def test_quantized_caches_are_refused(self):
        model = build(Form(sink=True))
        node = model.proto.graph.node[-1]
        node.input.extend(["key_scale", "value_scale"])
        scales = (helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0]) for name in ("key_scale", "value_scale"))
        model.proto.graph.initializer.extend(scales)
        self.refused(model, "key_scale quantizes its caches")

    def test_old_operator_sets_are_refused(self):
        model = build(Form())
        model.proto.opset_import[0].version = 12
        self.refused(model, "got 12")

    def test_unknown_head_sizes_are_refused(self):
        model = build(Form(packed=True))
        model.proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "width"
        tensor = next(tensor for tensor in model.proto.graph.initializer if tensor.name == "weight_qkv")
        model.proto.graph.initializer.remove(tensor)
        model.proto.graph.input.append(
            onnx.helper.make_tensor_value_info("weight_qkv", onnx.TensorProto.FLOAT, ["width", "wide"])
        )
        self.refused(model, "its head_dim is unknown")


@pytest.mark.parametrize(
    ("form", "left"),
    [
        (Form(), ""),
        (Form(packed=True, interleaved=True, head_dim=32), ""),
        (Form(window=3, sink=True), ""),
        (Form(smooth=True), ""),
        (Form(bias=True), ""),
        (Form(softcap=2.0), "soft-capped"),
    ],
    ids=str,
)
def test_fuse_attention_fuses_the_result(form, left):
    result = PassManager([LowerOperators(), ToOpenVINO(), FuseAttention()]).run(build(form))
    notes = result.records[-1].result.notes
    kinds = [op.get_type_name() for op in result.model.ov_model.get_ops()]
    assert kinds.count("ScaledDotProductAttention") == (0 if left else 1)
    assert left in "".join(notes)
