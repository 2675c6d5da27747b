"""Models for tests of caches: exports under random names and in random order, and small decoders in any layout."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
import openvino
from openvino import opset13 as ops
from openvino.op.util import VariableInfo

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel

VOCABULARY, HIDDEN, HEADS, HEAD_DIM = 23, 12, 3, 4


class Renaming:
    """Random names that say nothing and sort in no useful order; equal names stay equal."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.names: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if not name:
            return name
        if name not in self.names:
            self.names[name] = "".join(self._random.choices("abcdefgh0123456789", k=12))
        return self.names[name]


def renamed(model: OnnxModel | OpenVINOModel, rename: Callable[[str], str]) -> OnnxModel | OpenVINOModel:
    """A copy of ``model`` in which inputs, outputs, nodes, tensors, symbols and variables are called something else."""
    if isinstance(model, OnnxModel):
        return _renamed_onnx(model, rename)
    return _renamed_openvino(model, rename)


def shuffled(model: OnnxModel | OpenVINOModel, seed: int) -> OnnxModel | OpenVINOModel:
    """A copy of ``model`` with its inputs and its outputs in another order."""
    shuffle = random.Random(seed).shuffle
    copy = model.clone()
    if isinstance(copy, OnnxModel):
        for ports in (copy.proto.graph.input, copy.proto.graph.output):
            order = [onnx.ValueInfoProto.FromString(port.SerializeToString()) for port in ports]
            shuffle(order)
            del ports[:]
            ports.extend(order)
        copy.mark_edited()
        return copy
    parameters, results, sinks = (list(nodes) for nodes in _ends(copy.ov_model))
    for nodes in (parameters, results, sinks):
        shuffle(nodes)
    return OpenVINOModel(openvino.Model(results, sinks, parameters, "shuffled"))


def _ends(native: openvino.Model) -> tuple[list[Any], list[Any], list[Any]]:
    return native.get_parameters(), native.get_results(), native.get_sinks()


def _renamed_openvino(model: OpenVINOModel, rename: Callable[[str], str]) -> OpenVINOModel:
    copy = model.clone()
    # A Result shares some names with what it reads and has others of its own.
    named = [(output, output.get_names()) for op in copy.ov_model.get_ops() for output in op.outputs()]
    for op in copy.ov_model.get_ops():
        op.set_friendly_name(rename(op.get_friendly_name()))
    for output, names in named:
        output.set_names({rename(name) for name in names})
    for variable in copy.ov_model.get_variables():
        info = VariableInfo()
        info.data_shape, info.data_type = variable.info.data_shape, variable.info.data_type
        info.variable_id = rename(variable.info.variable_id)
        variable.update(info)
    copy.mark_edited()
    return copy


def _renamed_onnx(model: OnnxModel, rename: Callable[[str], str]) -> OnnxModel:
    copy = model.clone()
    graphs = [copy.proto.graph]
    for graph in graphs:
        for info in (*graph.input, *graph.output, *graph.value_info):
            info.name = rename(info.name)
            for dimension in info.type.tensor_type.shape.dim:
                if dimension.dim_param:
                    dimension.dim_param = rename(dimension.dim_param)
        for tensor in graph.initializer:
            tensor.name = rename(tensor.name)
        for node in graph.node:
            node.name = rename(node.name)
            node.input[:] = [rename(name) for name in node.input]
            node.output[:] = [rename(name) for name in node.output]
            graphs.extend(attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH)
    copy.mark_edited()
    return copy


@dataclass
class TinyDecoder:
    """A stateless decoder of ``layers`` attention layers with weights of its own, built with OpenVINO.

    Attributes:
        layout: The order of a cache's axes, letters of ``BHLD``.
        layers: How many layers.
        cache_type: Element type of the caches; converted before and after where it is not f32.
        batch: The batch size; -1 where it is dynamic.
        names: Names of past and present by layer and role.
        fused: Whether attention is one operator; else MatMul, Softmax, MatMul.
        reads_length: Whether the mask follows from the shape of the first past rather than from attention_mask.
        softcap: Whether the scores are soft-capped, as gemma2 has it.
        sink: Whether a column that is not a position takes part in the Softmax, as gpt_oss has it.
        value_layout: The order of a value cache's axes; that of the key's where omitted.
    """

    layout: str = "BHLD"
    layers: int = 2
    cache_type: openvino.Type = openvino.Type.f32
    batch: int = -1
    names: tuple[str, str] = ("past_key_values.{layer}.{role}", "present.{layer}.{role}")
    fused: bool = True
    reads_length: bool = False
    softcap: bool = False
    sink: bool = False
    value_layout: str | None = None

    def build(self) -> OpenVINOModel:
        """The model: ``input_ids``, ``attention_mask`` and the pasts to ``logits`` and the presents."""
        self._weights = numpy.random.default_rng(7)
        self.parameters: list[Any] = []
        self.results: list[Any] = []
        ids = self._input("input_ids", openvino.Type.i64, [self.batch, -1])
        mask = self._input("attention_mask", openvino.Type.i64, [self.batch, -1])
        hidden = ops.gather(self._weight(VOCABULARY, HIDDEN), ids, ops.constant(0))
        self._hidden, self._seen = hidden, None if self.reads_length else self._mask(ids, mask)
        for layer in range(self.layers):
            self._hidden = ops.add(self._hidden, self._attention(layer, self._hidden, ids, mask))
        logits = ops.matmul(self._hidden, self._weight(HIDDEN, VOCABULARY), False, False)
        self._output("logits", logits.output(0), first=True)
        native = openvino.Model(self.results, self.parameters, "tiny")
        native.validate_nodes_and_infer_types()
        return OpenVINOModel(native)

    def _input(self, name: str, element_type: openvino.Type, shape: list[int]) -> Any:
        node = ops.parameter(openvino.PartialShape(shape), element_type)
        node.set_friendly_name(name)
        node.output(0).set_names({name})
        self.parameters.append(node)
        return node

    def _output(self, name: str, value: Any, *, first: bool = False) -> None:
        result = ops.result(value)
        result.set_friendly_name(name)
        value.add_names({name})
        self.results.insert(0 if first else len(self.results), result)

    def _weight(self, *shape: int) -> Any:
        return ops.constant(self._weights.standard_normal(shape).astype(numpy.float32) * 0.6)

    def _attention(self, layer: int, hidden: Any, ids: Any, mask: Any) -> Any:
        query = ops.transpose(self._heads(hidden), ops.constant([0, 2, 1, 3]))
        key = self._cached(layer, "key", self._heads(hidden))
        if self._seen is None:
            self._seen = self._mask(ids, mask, self._past_length)
        value = self._cached(layer, "value", self._heads(hidden))
        if self.fused:
            read = ops.scaled_dot_product_attention(query, key, value, self._seen)
        else:
            scores = ops.multiply(ops.matmul(query, key, False, True), ops.constant(numpy.float32(HEAD_DIM**-0.5)))
            if self.softcap:
                scores = ops.multiply(
                    ops.tanh(ops.multiply(scores, ops.constant(numpy.float32(0.5)))), ops.constant(numpy.float32(2))
                )
            read = ops.matmul(self._probabilities(ops.add(scores, self._seen)), value, False, False)
        merged = ops.reshape(ops.transpose(read, ops.constant([0, 2, 1, 3])), ops.constant([0, 0, -1]), True)
        return ops.matmul(merged, self._weight(HEADS * HEAD_DIM, HIDDEN), False, False)

    def _probabilities(self, scores: Any) -> Any:
        if not self.sink:
            return ops.softmax(scores, -1)
        column = ops.reduce_max(ops.multiply(scores, ops.constant(numpy.float32(0))), ops.constant([-1]), True)
        whole = ops.softmax(ops.concat([scores, column], -1), -1)
        ends = [ops.constant([number]) for number in (0, -1, 1, 3)]
        return ops.slice(whole, *ends)

    def _heads(self, hidden: Any) -> Any:
        flat = ops.matmul(hidden, self._weight(HIDDEN, HEADS * HEAD_DIM), False, False)
        return ops.reshape(flat, ops.constant([0, 0, HEADS, HEAD_DIM]), True)

    def _cached(self, layer: int, role: str, new: Any) -> Any:
        """Append ``new`` ``[B, L, H, D]`` to its past; what attention reads, ``[B, H, L, D]``."""
        layout = (self.value_layout or self.layout) if role == "value" else self.layout
        sizes = {"B": self.batch, "H": HEADS, "L": -1, "D": HEAD_DIM}
        past_name, present_name = (name.format(layer=layer, role=role) for name in self.names)
        past = self._input(past_name, self.cache_type, [sizes[axis] for axis in layout])
        old = past if self.cache_type == openvino.Type.f32 else ops.convert(past, "f32")
        if self.reads_length and layer == 0 and role == "key":
            shape = ops.shape_of(old, "i64")
            self._past_length = ops.gather(shape, ops.constant(layout.index("L")), ops.constant(0))
        whole = ops.concat([old, _permuted(new, "BLHD", layout)], layout.index("L")).output(0)
        kept = (
            whole if self.cache_type == openvino.Type.f32 else ops.convert(whole, self.cache_type.to_string()).output(0)
        )
        self._output(present_name, kept)
        return _permuted(whole, layout, "BHLD")

    def _mask(self, ids: Any, mask: Any, past_length: Any = None) -> Any:
        """What is added to the scores: ``[B, 1, new, all]``, causal and without padding."""
        new = ops.gather(ops.shape_of(ids, "i64"), ops.constant(1), ops.constant(0))
        if past_length is None:
            total = ops.gather(ops.shape_of(mask, "i64"), ops.constant(1), ops.constant(0))
        else:
            total = ops.add(past_length, new)
        zero, one = ops.constant(numpy.int64(0)), ops.constant(numpy.int64(1))
        columns = ops.unsqueeze(ops.range(zero, total, one, "i64"), ops.constant(0))
        rows = ops.unsqueeze(ops.range(ops.subtract(total, new), total, one, "i64"), ops.constant(1))
        causal = ops.unsqueeze(ops.less_equal(columns, rows), ops.constant([0, 1]))
        real = ops.unsqueeze(ops.equal(mask, one), ops.constant([1, 2]))
        seen = ops.logical_and(causal, real)
        return ops.select(seen, ops.constant(numpy.float32(0)), ops.constant(numpy.float32(-1e9)))


def _permuted(value: Any, layout: str, wanted: str) -> Any:
    if layout == wanted:
        return value
    return ops.transpose(value, ops.constant([layout.index(axis) for axis in wanted]))
