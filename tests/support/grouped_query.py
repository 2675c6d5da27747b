"""com.microsoft GroupQueryAttention as ONNX Runtime GenAI's builder writes it, with all its options."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.model import OnnxModel

_POSITIONS = 64


@dataclass(frozen=True)
class Form:
    """What the operator is told."""

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
    inputs = [_info("hidden", [form.batch, "length", width])]
    if form.lengths == "mask":
        inputs.append(_info("attention_mask", [form.batch, "total"], TensorProto.INT64))
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
        inputs.append(_info("seqlens_k", [form.batch], TensorProto.INT32))
        inputs.append(_info("total_sequence_length", [], TensorProto.INT32))
    past = [form.batch, form.kv_heads, "past", "head_dim"]
    inputs += [_info("past_key", past), _info("past_value", past)]
    operands += ["past_key", "past_value", "seqlens_k", "total_sequence_length"]
    if form.rotary:
        angles = random.uniform(0, 6, [_POSITIONS, form.rotary_dim // 2])
        weights |= {"cos": numpy.cos(angles), "sin": numpy.sin(angles)}
    operands += ["cos", "sin"] if form.rotary else ["", ""]
    operands += ["position_ids" if form.positions else "", "bias" if form.bias else "", "sink" if form.sink else ""]
    if form.positions:
        inputs.append(_info("position_ids", [form.batch, "length"], TensorProto.INT64))
    if form.bias:
        inputs.append(_info("bias", [1, form.heads, "length", "total"]))
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
    outputs = [_info("attended", [form.batch, "length", sizes[0]])]
    outputs += [_info("present_key", present), _info("present_value", present)]
    held = [numpy_helper.from_array(array.astype(numpy.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "grouped_query", inputs, outputs, held)
    opsets = [helper.make_opsetid("", form.opset), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def _info(name: str, shape: list[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
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
            "bias": _bias(form, mask.shape[1])[:, :, -length:],
        }
        names = {info.name for info in self._session.get_inputs()}
        attended, key, value = self._session.run(
            ["attended", "present_key", "present_value"], {name: given[name] for name in names}
        )
        self._caches = {"past_key": key, "past_value": value}
        return attended


def _bias(form: Form, total: int) -> numpy.ndarray:
    """The same number for a pair of positions at every step."""
    whole = numpy.random.default_rng(4).standard_normal([1, form.heads, _POSITIONS, _POSITIONS])
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
