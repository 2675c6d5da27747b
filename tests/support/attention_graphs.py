"""Decomposed attention in the many ways in which exporters write it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy
import openvino
from openvino import opset13 as ops

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager

HEADS, HEAD_DIM = 4, 8

#: Mask shapes by what they vary over: B batch, H heads, L length, S sequence; 1 for an axis of one element.
MASK_SHAPES = ("B1LS", "11LS", "LS", "BHLS", "B11S", "S", "1S", "HLS", "BHL1")


@dataclass(frozen=True)
class Scale:
    """A factor of the scores, or what divides them."""

    factor: float
    on: Literal["query", "key", "scores", "after masks"] = "scores"
    divides: bool = False
    is_left: bool = False
    source: Literal["constant", "vector", "shape", "input"] = "constant"


@dataclass(frozen=True)
class Mask:
    """A mask, fed to the input ``mask_<number>``."""

    shape: str = "B1LS"
    how: Literal["add", "add left", "subtract", "keep", "hide", "chosen"] = "add"
    fill: float = -numpy.inf


@dataclass(frozen=True)
class Sink:
    """One more column of scores; ``shape`` is that of the numbers before they are copied to all rows."""

    shape: tuple[int, ...] = (1, HEADS, 1, 1)
    column: Literal["first", "last"] = "last"
    drop: Literal["Slice", "StridedSlice", "VariadicSplit"] = "Slice"
    is_input: bool = False


@dataclass(frozen=True)
class Form:
    """Describe the form that attention is written in."""

    scales: tuple[Scale, ...] = (Scale(0.3),)
    masks: tuple[Mask, ...] = ()
    guard: bool = False
    key: Literal["transpose", "matmul", "once", "stored", "merged"] = "transpose"
    groups: int = 1
    past: bool = False
    value_dim: int = 8
    element_type: str = "f32"
    softmax_type: str = "f32"
    wide_value: bool = False
    wide_scores: bool = False
    sink: Sink | None = None
    shifted: bool = False


@dataclass(frozen=True)
class Sizes:
    batch: int = 2
    length: int = 3
    sequence: int = 5


def build(form: Form) -> openvino.Model:
    """Inputs ``query``, ``key``, ``value`` (``past_key``, ``past_value``), ``mask_<n>``; output ``attended``."""
    return _Builder(form).build()


class _Builder:
    def __init__(self, form: Form) -> None:
        self.form = form
        self.inputs: list[openvino.Node] = []

    def build(self) -> openvino.Model:
        form, kv_heads = self.form, HEADS // self.form.groups
        query = self.input("query", form.element_type, [-1, HEADS, -1, HEAD_DIM])
        key, value = self.key(kv_heads), self.cached("value", kv_heads, form.value_dim)
        if form.wide_scores:
            query, key = ops.convert(query, form.softmax_type), ops.convert(key, form.softmax_type)
        query, key = self.scaled(query, "query"), self.scaled(key, "key")
        scores = self.scaled(ops.matmul(query, key, False, form.key == "matmul"), "scores")
        if form.softmax_type != form.element_type and not form.wide_scores:
            scores = ops.convert(scores, form.softmax_type)
        for number, mask in enumerate(form.masks):
            scores = self.masked(scores, mask, number)
        scores = self.scaled(scores, "after masks")
        if form.sink is not None:
            scores = self.with_sink(scores, form.sink)
        if form.shifted:
            scores = ops.subtract(scores, ops.reduce_max(scores, integers(-1), True))
        weights = ops.softmax(scores, -1)
        if form.guard:
            zero = ops.constant(0.0, dtype=weights.get_element_type())
            weights = ops.select(ops.is_nan(weights), zero, weights)
        if form.wide_value:
            value = ops.convert(value, form.softmax_type)
        elif form.softmax_type != form.element_type:
            weights = ops.convert(weights, form.element_type)
        if form.sink is not None:
            weights = dropped(weights, form.sink)
        product = ops.matmul(weights, value, False, False)
        product.set_friendly_name("attention/product")
        product.output(0).set_names({"attended"})
        result = ops.result(product)
        result.set_friendly_name("result")
        return openvino.Model([result], self.inputs)

    def input(self, name: str, element_type: str, shape: list[int]) -> openvino.Node:
        node = ops.parameter(openvino.PartialShape(shape), getattr(openvino.Type, element_type))
        node.set_friendly_name(name)
        node.output(0).set_names({name})
        self.inputs.append(node)
        return node

    def cached(self, name: str, heads: int, dim: int) -> openvino.Node:
        new = self.input(name, self.form.element_type, [-1, heads, -1, dim])
        if self.form.past:
            new = ops.concat([self.input(f"past_{name}", self.form.element_type, [-1, heads, -1, dim]), new], 2)
        if self.form.groups == 1:
            return new
        apart = ops.unsqueeze(new, ops.constant([2], dtype=openvino.Type.i64))
        copied = ops.broadcast(apart, integers(1, 1, self.form.groups, 1, 1), broadcast_spec="BIDIRECTIONAL")
        return ops.reshape(copied, integers(0, HEADS, -1, dim), special_zero=True)

    def key(self, heads: int) -> openvino.Node:
        if self.form.key == "stored":
            return self.input("key", self.form.element_type, [-1, HEADS, HEAD_DIM, -1])
        if self.form.key == "once":
            return ops.transpose(
                self.input("key", self.form.element_type, [-1, -1, HEADS, HEAD_DIM]), integers(0, 2, 3, 1)
            )
        key = self.cached("key", heads, HEAD_DIM)
        if self.form.key == "merged":
            shape = ops.shape_of(key)
            length = ops.gather(shape, ops.constant([2], dtype=openvino.Type.i64), integers(0))
            rows = ops.reshape(key, ops.concat([integers(-1), length, integers(HEAD_DIM)], 0), special_zero=False)
            batch = ops.gather(shape, ops.constant([0], dtype=openvino.Type.i64), integers(0))
            split = ops.concat([batch, integers(HEADS, HEAD_DIM), length], 0)
            return ops.reshape(ops.transpose(rows, integers(0, 2, 1)), split, special_zero=False)
        return ops.transpose(key, integers(0, 1, 3, 2)) if self.form.key == "transpose" else key

    def scaled(self, value: openvino.Node, place: str) -> openvino.Node:
        for scale in self.form.scales:
            if scale.on == place:
                factor = self.factor(scale, value.get_element_type())
                combine = ops.divide if scale.divides else ops.multiply
                value = combine(factor, value) if scale.is_left and not scale.divides else combine(value, factor)
        return value

    def factor(self, scale: Scale, element_type: openvino.Type) -> openvino.Node:
        if scale.source == "constant":
            return ops.constant(scale.factor, dtype=element_type)
        if scale.source == "vector":
            return ops.constant([[[scale.factor]]], dtype=element_type)
        if scale.source == "input":
            name = f"scale_{len(self.inputs)}"
            return self.input(name, element_type.to_string(), [1])
        shape = ops.shape_of(self.inputs[0])
        size = ops.gather(shape, ops.constant([-1], dtype=openvino.Type.i64), ops.constant(0, dtype=openvino.Type.i64))
        return ops.sqrt(ops.convert(size, element_type.to_string()))

    def with_sink(self, scores: openvino.Node, sink: Sink) -> openvino.Node:
        element_type = scores.get_element_type()
        numbers = numpy.linspace(-1, 2, int(numpy.prod(sink.shape))).reshape(sink.shape)
        if sink.is_input:
            learned = self.input("sink", element_type.to_string(), list(sink.shape))
        else:
            learned = ops.constant(numbers, dtype=element_type)
        rows = ops.shape_of(ops.reduce_max(scores, integers(-1), True))
        copied = ops.broadcast(learned, rows)
        return ops.concat([scores, copied] if sink.column == "last" else [copied, scores], 3)

    def masked(self, scores: openvino.Node, mask: Mask, number: int) -> openvino.Node:
        element_type = scores.get_element_type()
        chooses = mask.how in {"keep", "hide", "chosen"}
        shape = [{"1": 1, "H": HEADS}.get(axis, -1) for axis in mask.shape]
        mask_input = self.input(f"mask_{number}", "boolean" if chooses else element_type.to_string(), shape)
        if mask.how == "add":
            return ops.add(scores, mask_input)
        if mask.how == "add left":
            return ops.add(mask_input, scores)
        if mask.how == "subtract":
            return ops.subtract(scores, mask_input)
        fill = ops.constant(numpy.float32(mask.fill), dtype=element_type)
        if mask.how == "chosen":
            return ops.add(scores, ops.select(mask_input, ops.constant(0.0, dtype=element_type), fill))
        return ops.select(mask_input, scores, fill) if mask.how == "keep" else ops.select(mask_input, fill, scores)


def dropped(weights: openvino.Node, sink: Sink) -> openvino.Node:
    """``weights`` without the column of ``sink``."""
    last = sink.column == "last"
    if sink.drop == "VariadicSplit":
        parts = ops.variadic_split(weights, integers(3), integers(-1, 1) if last else integers(1, -1))
        return parts.output(0 if last else 1)
    bounds = (0, -1) if last else (1, 2**63 - 1)
    if sink.drop == "Slice":
        return ops.slice(weights, *(integers(bound) for bound in bounds), integers(1), integers(-1))
    begin, end = (integers(0, 0, 0, bound) for bound in bounds)
    return ops.strided_slice(weights, begin, end, integers(1, 1, 1, 1), [1, 1, 1, 0], [1, 1, 1, 0])


def integers(*values: int) -> openvino.Node:
    return ops.constant(list(values), dtype=openvino.Type.i64)


def feeds(form: Form, model: openvino.Model, sizes: Sizes, seed: int) -> tuple[dict[str, numpy.ndarray], numpy.ndarray]:
    """Random inputs, and which rows ``[batch, heads, length]`` see anything."""
    random = numpy.random.default_rng(seed)
    past = 2 if form.past else 0
    axes = {"B": sizes.batch, "H": HEADS, "L": sizes.length, "S": sizes.sequence + past, "1": 1}
    arrays: dict[str, numpy.ndarray] = {}
    visible = numpy.ones([axes[axis] for axis in "BHLS"], bool)
    for port in model.inputs:
        name = port.get_any_name()
        dtype = port.get_element_type().to_dtype()
        if name.startswith("mask_"):
            mask = form.masks[int(name.removeprefix("mask_"))]
            seen = random.random([axes[axis] for axis in mask.shape]) < 0.7
            visible = visible & seen
            arrays[name] = _mask(mask, seen, random).astype(dtype)
        elif name.startswith("scale_"):
            arrays[name] = numpy.array([0.4], dtype)
        elif name == "sink":
            arrays[name] = random.standard_normal(port.get_shape()).astype(dtype)
        else:
            dims = [dim.get_length() if dim.is_static else None for dim in port.get_partial_shape()]
            length = {"query": sizes.length, "past_key": past, "past_value": past}.get(name, sizes.sequence)
            shape = [sizes.batch, *(length if dim is None else dim for dim in dims[1:])]
            arrays[name] = random.standard_normal(shape).astype(dtype)
    return arrays, visible.any(-1)


def _mask(mask: Mask, seen: numpy.ndarray, random: numpy.random.Generator) -> numpy.ndarray:
    if mask.how in {"keep", "chosen"}:
        return seen
    if mask.how == "hide":
        return ~seen
    bias = random.standard_normal(seen.shape)
    sign = -1 if mask.how == "subtract" else 1
    with numpy.errstate(over="ignore"):
        return numpy.where(seen, bias, mask.fill).astype(numpy.float32) * numpy.float32(sign)


def fused(model: openvino.Model) -> tuple[openvino.Model, list[str], tuple[str, ...]]:
    """The model after fuse-attention, its operators' types, and the pass's notes."""
    from graphpass.passes.attention.fuse_attention import FuseAttention

    result = PassManager([FuseAttention()]).run(OpenVINOModel(model))
    after = result.model
    assert isinstance(after, OpenVINOModel)
    types = [op.get_type_name() for op in after.ov_model.get_ops()]
    return after.ov_model, types, result.records[0].result.notes  # type: ignore[union-attr]


_CORE = openvino.Core()


def infer(model: openvino.Model, arrays: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """The outputs by name, computed in f32 on CPU."""
    return infer_each(model, [arrays])[0]


def infer_each(model: openvino.Model, inputs: Iterable[dict[str, numpy.ndarray]]) -> list[dict[str, numpy.ndarray]]:
    """The outputs by name for each of several inputs."""
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = _CORE.compile_model(model, "CPU", exact)
    all_results = [compiled(arrays) for arrays in inputs]
    return [{(output.get_any_name()): results[output] for output in compiled.outputs} for results in all_results]


def is_expressible(form: Form) -> bool:
    """Return whether ScaledDotProductAttention says it: fills scaled down afterwards may hide too little."""
    late = any(scale.on == "after masks" for scale in form.scales)
    return not (late and any(mask.how in {"keep", "hide"} and mask.fill > -1e8 for mask in form.masks))


def check(form: Form, sizes: Sizes, seed: int = 0, tolerance: float = 1e-5) -> Counter[str]:
    """Fuses ``form`` and compares the rows that see anything; how many operators of each type there are then."""
    before = build(form)
    after, types, notes = fused(before.clone())
    assert ("ScaledDotProductAttention" in types) == is_expressible(form), notes
    assert ("Softmax" in types) != is_expressible(form)
    assert bool(notes) != is_expressible(form)
    product = after.outputs[0].get_node().input_value(0)
    assert product.get_node().get_friendly_name() == "attention/product"
    assert product.get_names() == {"attended"}
    assert product.get_element_type() == before.outputs[0].get_element_type()
    given_inputs, sees = feeds(form, before, sizes, seed)
    expected, actual = infer(before, given_inputs)["attended"], infer(after, given_inputs)["attended"]
    assert expected.shape == actual.shape
    if is_expressible(form):
        assert numpy.isfinite(actual).all()
    numpy.testing.assert_allclose(actual[sees], expected[sees], atol=tolerance, rtol=tolerance)
    return Counter(types)
