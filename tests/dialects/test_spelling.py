"""Operators as arguments of the rewriter: a model made of its own text is the same model."""

import numpy
import onnx
import onnx.parser
import openvino
import pytest
from openvino import opset1, opset13

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.text.printer import text_of
from graphpass.testing import parse_model

#: ONNX operators, and their text form.
ONNX = {
    "y = Cast <to = 10> (x)": "Convert(%x) {to=f16}",
    "y = Transpose (x)": "Transpose(%x) {order=[2, 1, 0]}",
    "y = Concat <axis = -1> (x, x)": "Concat(%x, %x) {axis=2}",
    "y = Softmax (x)": "Softmax(%x) {axis=2}",
    "y = ReduceSum (x, one)": "ReduceSum(%x) {axes=[1], keep=true}",
    "y = ReduceSum <keepdims = 0> (x, one)": "ReduceSum(%x) {axes=[1]}",
    "y = ReduceSum (x)": "onnx.ReduceSum(%x)",
    "y = CumSum <exclusive = 1> (x, last)": "CumSum(%x) {axis=2, exclusive=1}",
    "y = Slice (x, one, two, one)": "Slice(%x, [1], [2]) {axes=[1]}",
    "y = Slice (x, one, two, one, two)": "Slice(%x, [1], [2], [2]) {axes=[1]}",
    "y = Reshape (x, shape)": "Reshape(%x, [0, -1])",
    "y = Reshape <allowzero = 1> (x, empty)": "Reshape(%x, [0, 3]) {zero_keeps=false}",
    "y = Pad (x, pads)": "onnx.Pad(%x, [0, 0, 0, 0, 0, 1])",
    "y = com.microsoft.QuickGelu <alpha = 1.0> (x)": "Swish(%x)",
    "y = com.microsoft.QuickGelu (x)": "com.microsoft.QuickGelu(%x)",
    "y = Identity (x)": "Identity(%x)",
    "y = Split <axis = 1, num_outputs = 2> (x)": "onnx.Split(%x) {axis=1, num_outputs=2}",
}


def of_onnx(body: str) -> OnnxModel:
    text = f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    operators (float[b, 4, 3] x) => (y) {{
        one = Constant <value_ints = [1]> ()
        two = Constant <value_ints = [2]> ()
        last = Constant <value = int64 {{-1}}> ()
        shape = Constant <value_ints = [0, -1]> ()
        empty = Constant <value_ints = [0, 3]> ()
        pads = Constant <value_ints = [0, 0, 0, 0, 0, 1]> ()
        {body}
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def line_of(model) -> str:
    (line,) = [line for line in text_of(model.graph).splitlines() if line.startswith("%y")]
    return line.partition(" = ")[2].partition(" : ")[0]


@pytest.mark.parametrize("body", [body for body in ONNX if "Split" not in body])
def test_operators_of_onnx(body):
    assert line_of(of_onnx(body)) == ONNX[body]
    again = parse_model(text_of(of_onnx(body).graph))
    assert line_of(again) == ONNX[body]


def shared(*values: int):
    return opset13.constant(numpy.array(values, numpy.int64))


#: OpenVINO operators, and their text form.
OPENVINO = {
    "softmax": (lambda x: opset13.softmax(x, -1), "Softmax(%x) {axis=2}"),
    "transpose": (lambda x: opset13.transpose(x, shared(2, 1, 0)), "Transpose(%x) {order=[2, 1, 0]}"),
    "sum": (lambda x: opset13.reduce_sum(x, shared(-1), keep_dims=True), "ReduceSum(%x) {axes=[2], keep=true}"),
    "sum without axis": (lambda x: opset13.reduce_sum(x, shared(1)), "ReduceSum(%x) {axes=[1]}"),
    "slice": (lambda x: opset13.slice(x, shared(1), shared(2), shared(1), shared(1)), "Slice(%x, [1], [2]) {axes=[1]}"),
    "slice by steps": (
        lambda x: opset13.slice(x, shared(1), shared(2), shared(2), shared(1)),
        "Slice(%x, [1], [2], [2]) {axes=[1]}",
    ),
    "gather": (lambda x: opset13.gather(x, shared(1), shared(2)), "Gather(%x, [1]) {axis=2}"),
    "gather of an earlier opset": (lambda x: opset1.gather(x, shared(1), shared(2)), "opset1.Gather(%x, [1], [2])"),
}


@pytest.mark.parametrize("name", OPENVINO)
def test_operators_of_openvino(name):
    make, expected = OPENVINO[name]
    x = opset13.parameter([-1, 4, 3], numpy.float32, name="x")
    x.output(0).set_names({"x"})
    y = make(x)
    y.set_friendly_name("y")
    result = opset13.relu(y)
    result.output(0).set_names({"result"})
    model = OpenVINOModel(openvino.Model([result], [x], "operators"))
    assert line_of(model) == expected
    assert line_of(parse_model(text_of(model.graph), "openvino")) == expected
