"""Attributes of operators: forms that differ in one attribute are not equal, unless it has no effect."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import onnx
import onnx.parser
import openvino
import pytest
from openvino import opset7, opset13
from verify.structure.comparing import is_equal

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel

_STATES = "float[b, n, 8] x"
_WEIGHT = "g = Constant <value = float[8] {1, 2, 3, 4, 5, 6, 7, 8}> ()"
_HEADS = "float[b, n, 8] q, float[b, n, 8] k, float[b, n, 8] v, int32[b, n] mask"
_MULTI_HEAD = "y = com.microsoft.MultiHeadAttention <num_heads = 2%s> (q, k, v, , mask)"
_GROUPS = """float[b, n, 64] q, float[b, n, 32] k, float[b, n, 32] v, float[b, 2, p, 16] pk, float[b, 2, p, 16] pv"""
_GROUP_QUERY = """one = Constant <value_ints = [1]> ()
    past = Shape <start = 2, end = 3> (pk)
    new = Shape <start = 1, end = 2> (q)
    sum = Add (past, new)
    total = Cast <to = 6> (sum)
    last = Sub (sum, one)
    narrow = Cast <to = 6> (last)
    rows = Shape <end = 1> (q)
    counts = Expand (narrow, rows)
    y, k1, v1 = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2%s>
        (q, k, v, pk, pv, counts, total)"""
_MIXTURE = """float[b, 8] x, float[b, 4] r, float[4, 16, 8] w, float[4, 8, 8] v"""
_EXPERTS = """y = com.microsoft.MoE
    <k = 2, activation_type = "swiglu", swiglu_fusion = 1, swiglu_limit = 7.0%s> (x, r, w, , v)"""
_FOUR_AXES = "float[b, 2, n, 4] x"
_TURNED = "float[b, n, 8] x, int64[b, n] ids, float[16, 4] c, float[16, 4] s"
_ROTATION = "y = com.microsoft.RotaryEmbedding %s (x, ids, c, s)"
_CONVOLVED = "float[b, n, 6] x, float[6, 1, 3] w, float[b, 2, 6] past"
_CONVOLUTION = "y, present = com.microsoft.CausalConvWithState <channels_last = 1%s> (x, w, , past)"

#: Operators of ONNX: opset, inputs and two bodies.
ONNX: dict[str, tuple[int, str, str, str]] = {
    "Softmax of opset 11": (11, _STATES, "y = Softmax <axis = 2> (x)", "y = Softmax (x)"),
    "epsilon of SkipSimplifiedLayerNormalization": (
        19,
        _STATES,
        _WEIGHT + "y = com.microsoft.SkipSimplifiedLayerNormalization (x, x, g)",
        _WEIGHT + "y = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.000001> (x, x, g)",
    ),
    "mask_filter_value": (19, _HEADS, _MULTI_HEAD % "", _MULTI_HEAD % ", mask_filter_value = -5.0"),
    "an empty window": (19, _GROUPS, _GROUP_QUERY % "", _GROUP_QUERY % ", local_window_size = 0"),
    "a flag of 2": (
        19,
        _MIXTURE,
        _EXPERTS % ", normalize_routing_weights = 1",
        _EXPERTS % ", normalize_routing_weights = 2",
    ),
    "swiglu_limit_after_activation": (19, _MIXTURE, _EXPERTS % "", _EXPERTS % ", swiglu_limit_after_activation = 1"),
    "no scale, and a scale of 0": (23, _FOUR_AXES, "y = Attention (x, x, x)", "y = Attention <scale = 0.0> (x, x, x)"),
    "a causal flag of 2": (
        23,
        _FOUR_AXES,
        "y = Attention <is_causal = 1> (x, x, x)",
        "y = Attention <is_causal = 2> (x, x, x)",
    ),
    "no scale of rotation, and a scale of 0": (19, _TURNED, _ROTATION % "", _ROTATION % "<scale = 0.0>"),
    "rotary_embedding_dim of half the columns": (
        19,
        _TURNED,
        _ROTATION % "<num_heads = 1>",
        _ROTATION % "<num_heads = 1, rotary_embedding_dim = 4>",
    ),
    "input_channel_offset": (19, _CONVOLVED, _CONVOLUTION % "", _CONVOLUTION % ", input_channel_offset = 2"),
}


def of_onnx(opset: int, inputs: str, body: str) -> OnnxModel:
    text = f"""<ir_version: 9, opset_import: ["": {opset}, "com.microsoft": 1]>
    function ({inputs}) => (logits) {{
        {body}
        logits = Concat <axis = -1> (y, y)
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


@pytest.mark.parametrize("name", ONNX)
def test_forms_of_onnx_that_differ_in_one_attribute(name):
    opset, inputs, *bodies = ONNX[name]
    model, different = (of_onnx(opset, inputs, body) for body in bodies)
    assert is_equal(model, model.clone())
    assert not is_equal(model, different)


def test_a_mask_that_hides_keys_has_any_low_value():
    assert is_equal(
        of_onnx(19, _HEADS, _MULTI_HEAD % ""), of_onnx(19, _HEADS, _MULTI_HEAD % ", mask_filter_value = -9e9")
    )


def integers(*values: int) -> openvino.Node:
    return opset13.constant(numpy.array(values, numpy.int64))


def reals(*values: float) -> openvino.Node:
    return opset13.constant(numpy.array(values, numpy.float32))


Body = Callable[[openvino.Node], openvino.Node]


def _broadcast(operator: str, mode: str) -> Body:
    return lambda x: getattr(opset13, operator)(x, reals(1, 2, 3, 4), mode)


def _cut(begins: int) -> Body:
    bounds = [[1, 1], [2, 3], [1, 1]]
    none = [0, 0]
    return lambda x: opset13.strided_slice(
        x, *(integers(*row) for row in bounds), [begins, 0], none, none, [1, 0], none
    )


def _largest(sort: str) -> Body:
    return lambda x: opset13.topk(x, opset13.constant(numpy.int64(2)), 1, "max", sort).output(0)


def _mean(kind: str) -> Body:
    def mean(x: openvino.Node) -> openvino.Node:
        whole = opset13.convert(opset13.convert(x, "i32"), kind)
        return opset13.convert(opset13.reduce_mean(whole, integers(1), True), "f32")

    return mean


def _counted(x: openvino.Node, kind: str) -> openvino.Node:
    bounds = (opset13.constant(numpy.float32(bound)) for bound in (0.5, 4.5, 1))
    return opset13.add(opset13.floor(x), opset13.convert(opset13.range(*bounds, kind), "f32"))


def _added(last: float) -> Body:
    return lambda x: opset13.add(opset13.split(x, opset13.constant(numpy.int64(1)), 2).output(0), reals(0, last))


def _gathered(count: int) -> Body:
    """Gather by a large constant with negative indices, in the first ``count`` rows."""
    places = opset13.constant(numpy.arange(6000).reshape(2, 3000) % 5 - 2)
    rows = [integers(number) for number in (0, count, 1, 0)]
    return lambda x: opset13.gather(opset13.slice(x, *rows), places, opset13.constant(numpy.int64(0)))


#: Operators of OpenVINO on ``x`` [4, 4]: two functions.
OPENVINO: dict[str, tuple[Body, Body]] = {
    "Add aligned at the first axis": (_broadcast("add", "numpy"), _broadcast("add", "pdpd")),
    "Maximum aligned at the first axis": (_broadcast("maximum", "numpy"), _broadcast("maximum", "pdpd")),
    "begin_mask of an axis that is removed": (_cut(0), _cut(1)),
    "order of the largest elements": (_largest("index"), _largest("none")),
    "a mean of integers": (_mean("i32"), _mean("f32")),
    "a constant that is no number": (_added(numpy.inf), _added(-numpy.inf)),
    "negative indices that are constant": (_gathered(4), _gathered(3)),
    "integers clamped to half numbers": (
        lambda x: opset13.clamp(opset13.convert(opset13.convert(x, "i64"), "f32"), 0.5, 10.5),
        lambda x: opset13.convert(opset13.clamp(opset13.convert(x, "i64"), 0.5, 10.5), "f32"),
    ),
    "negative indices of Gather-7": (
        lambda x: opset13.gather(x, integers(-1, 0), opset13.constant(numpy.int64(0))),
        lambda x: opset7.gather(x, integers(-1, 0), opset13.constant(numpy.int64(0))),
    ),
    "a range of rounded numbers": (lambda x: _counted(x, "f32"), lambda x: _counted(x, "i64")),
}


def of_openvino(body: Body) -> OpenVINOModel:
    x = opset13.parameter([4, 4], numpy.float32, name="x")
    x.output(0).set_names({"x"})
    y = body(x)
    logits = opset13.concat([y, y], -1)
    logits.output(0).set_names({"logits"})
    return OpenVINOModel(openvino.Model([logits], [x], "attributes"))


@pytest.mark.parametrize("name", OPENVINO)
def test_forms_of_openvino_that_differ_in_one_attribute(name):
    model, different = map(of_openvino, OPENVINO[name])
    assert is_equal(model, model.clone())
    assert not is_equal(model, different)


def stored(element_type: str, first: int) -> OpenVINOModel:
    """Return a model that adds a constant of 4 elements, whose bytes begin with ``first``."""
    kind = getattr(openvino.Type, element_type)
    content = numpy.uint8([first, 20, 30, 40])[: 4 * kind.bitwidth // 8]
    constant = opset13.constant(openvino.Tensor(content, openvino.Shape([4]), kind), shared_memory=False)
    return of_openvino(lambda x: opset13.add(x, opset13.convert(constant, "f32")))


@pytest.mark.parametrize(("one", "other"), [("f8e4m3", "f8e5m2"), ("f8e4m3", "u8"), ("u4", "nf4"), ("u4", "i4")])
def test_equal_bytes_of_other_types(one, other):
    assert is_equal(stored(one, 16), stored(one, 16))
    assert not is_equal(stored(one, 16), stored(other, 16))
    assert not is_equal(stored(one, 16), stored(one, 17))


def test_batch_axes_of_gather_count_from_the_end():
    def gathered(batch: int) -> OpenVINOModel:
        places = opset13.constant(numpy.int64([[0, 1], [1, 1], [2, 3], [0, 0]]))
        return of_openvino(lambda x: opset13.gather(x, places, integers(1), batch))

    assert is_equal(gathered(1), gathered(-1))
    assert not is_equal(gathered(0), gathered(1).clone())


@pytest.mark.parametrize("kind", ["Relu", "Stacked", "Iteration"])
def test_operators_of_other_domains_are_not_those_of_onnx(kind):
    def model_of(operator: str) -> OnnxModel:
        text = f"""<ir_version: 9, opset_import: ["": 18, "my.operators": 1]>
        foreign (float[batch, length, 4] x) => (float[batch, length, 8] logits) <float[batch, length, 4] y> {{
            y = {operator} (x) logits = Concat <axis = -1> (y, y)
        }}"""
        return OnnxModel(onnx.parser.parse_model(text))

    assert not is_equal(model_of(f"my.operators.{kind}"), model_of("Relu"))
