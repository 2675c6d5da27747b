"""Open models of one operator on HTP: `python htp_operators.py ANSWER.json`.

Writes, by operator and element type, the predicted reason why HTP does not run the operator, and the runtime's error;
then the predicted reason why its numbers are wrong, and the largest difference from the CPU provider if it is more than
f16 rounds; null where HTP runs it, and rightly. Types that an operator does not have are left out. The package
onnxruntime-qnn has to be installed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from graphpass.errors import GraphpassError
from graphpass.io import load
from graphpass.runtime.backends.failures import running
from graphpass.runtime.backends.qnn_request import QnnRequest
from graphpass.targets.qnn.operators import why_on_cpu, why_wrong

TYPES = {
    "f16": TensorProto.FLOAT16,
    "f32": TensorProto.FLOAT,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "boolean": TensorProto.BOOL,
}

FLOATS = ("f16", "f32")

#: Versions of ONNX that first have an operator of this page, after 18.
OPSETS = {"Gelu": 20, "Attention": 23, "RMSNormalization": 23, "RotaryEmbedding": 23, "Swish": 24, "TensorScatter": 24}

SHAPE = (1, 4, 8)


@dataclass(frozen=True)
class Form:
    """Describes the operands of a node.

    Attributes:
        operands: Operands after the first: shapes of inputs of its type, or constants; those in floats get its type.
        attributes: Attributes of the node.
        shape: Shape of the first operand.
        before: Operands before the first; a type of NumPy for an input of that type.
        domain: Domain of the operator.
        results: Number of its results.
        op: The operator, if the form is not named by it.
    """

    operands: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = SHAPE
    before: tuple[Any, ...] = ()
    domain: str = ""
    results: int = 1
    op: str = ""


def whole(*values: int) -> numpy.ndarray:
    """Return a constant of i64."""
    return numpy.array(values, numpy.int64)


LAST = {"axis": -1}
MICROSOFT = "com.microsoft"
FORMS: dict[str, Form] = {
    **dict.fromkeys(
        ("Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsNaN",
         "LeakyRelu", "Log", "LogSoftmax", "Neg", "NonZero", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign",
         "Sin", "Size", "Shape", "Softmax", "Softplus", "Sqrt", "Swish", "Tanh", "Trilu", "Flatten"),
        Form(),
    ),
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul",
         "Or", "Pow", "Sub", "Xor"),
        Form((SHAPE,)),
    ),
    **dict.fromkeys(("FastGelu", "QuickGelu"), Form(domain=MICROSOFT)),
    **dict.fromkeys(
        ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
        Form((whole(-1),)),
    ),
    "ArgMax": Form(attributes=LAST),
    "Attention": Form(((1, 2, 4, 8), (1, 2, 4, 8)), shape=(1, 2, 4, 8)),
    "Clip": Form((numpy.float32(0), numpy.float32(1))),
    "Clip by inputs": Form(((), ()), op="Clip"),
    "Concat": Form((SHAPE,), LAST),
    "Conv": Form(((4, 4, 3),), {"pads": [1, 1]}),
    "CumSum": Form((whole(2)[0],)),
    "CumSum over rows": Form((whole(1)[0],), shape=(1, 16, 64), op="CumSum"),
    "Einsum": Form(((1, 8, 4),), {"equation": "bij,bjk->bik"}),
    "Expand": Form((whole(2, 4, 8),)),
    "Gather": Form((whole(0, 2),), {"axis": 1}),
    "GatherElements": Form((numpy.zeros((1, 2, 8), numpy.int64),), {"axis": 1}),
    "GatherND": Form((whole(0, 1)[None],)),
    "Gemm": Form(((8, 4), (4,)), shape=(4, 8)),
    "LayerNormalization": Form(((8,), (8,)), LAST),
    "MatMul": Form(((1, 8, 4),)),
    "Pad": Form((whole(0, 0, 0, 0, 1, 0),)),
    "RMSNormalization": Form(((8,),), LAST),
    "RotaryEmbedding": Form(((1, 4, 4), (1, 4, 4)), shape=(1, 2, 4, 8)),
    "RotaryEmbedding of com.microsoft": Form(
        (whole(0, 1, 2, 3)[None], (16, 4), (16, 4)), shape=(1, 4, 16), domain=MICROSOFT, op="RotaryEmbedding"
    ),
    "Reshape": Form((whole(1, 8, 4),)),
    "ScatterElements": Form((numpy.zeros((1, 2, 8), numpy.int64), (1, 2, 8)), {"axis": 1}),
    "ScatterND": Form((whole(0, 1)[None], (1, 8))),
    "SimplifiedLayerNormalization": Form(((8,),), LAST),
    "SkipSimplifiedLayerNormalization": Form((SHAPE, (8,)), domain=MICROSOFT),
    "Slice": Form((whole(1), whole(3), whole(1), whole(1))),
    "Split": Form((whole(2, 2),), {"axis": 1}, results=2),
    "Squeeze": Form((whole(0),)),
    "Tile": Form((whole(1, 2, 1),)),
    "TopK": Form((whole(2),), LAST, results=2),
    "Transpose": Form(attributes={"perm": [0, 2, 1]}),
    "Unsqueeze": Form((whole(1),)),
    "Where": Form((SHAPE,), before=(numpy.bool_,)),
}  # fmt: skip

REDUCTIONS = ("none", "add", "mul", "max", "min")

DEEP = (1, 2, 3, 4, 8)

#: Operators that keep their form with more axes in front.
DEEPENED = (
    *(
        "Abs",
        "Add",
        "ArgMax",
        "Ceil",
        "Clip",
        "Concat",
        "Cos",
        "Div",
        "Elu",
        "Equal",
        "Exp",
        "Floor",
        "Gelu",
        "Greater",
    ),
    *("HardSigmoid", "HardSwish", "IsNaN", "LayerNormalization", "LeakyRelu", "Less", "Log", "LogSoftmax", "MatMul"),
    *("Max", "Min", "Mul", "Neg", "Pow", "RMSNormalization", "Reciprocal", "ReduceL2", "ReduceMax", "ReduceMean"),
    *("ReduceSum", "Relu", "Round", "Sigmoid", "Sign", "SimplifiedLayerNormalization", "Sin", "Softmax", "Sqrt", "Sub"),
    *("Swish", "Tanh", "TopK", "Where"),
)


def operands(form: Form, kind: str) -> tuple[list[onnx.ValueInfoProto], list[onnx.TensorProto]]:
    """Return the inputs and constants of a node."""
    inputs, constants = [], []
    for index, operand in enumerate((*form.before, form.shape, *form.operands)):
        name = f"x{index}"
        if isinstance(operand, tuple):
            inputs.append(helper.make_tensor_value_info(name, TYPES[kind], operand))
        elif isinstance(operand, type):
            inputs.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(numpy.dtype(operand)), form.shape)
            )
        elif operand.dtype == numpy.float32:
            dtype = helper.tensor_dtype_to_np_dtype(TYPES[kind])
            constants.append(numpy_helper.from_array(numpy.asarray(operand, dtype), name))
        else:
            constants.append(numpy_helper.from_array(numpy.asarray(operand), name))
    return inputs, constants


def model(op: str, form: Form, kind: str) -> onnx.ModelProto | None:
    """Return a model of one operator; ``None`` if the operator does not have the type."""
    inputs, constants = operands(form, kind)
    is_known = not form.domain and op != "SimplifiedLayerNormalization"
    if not is_known and kind not in FLOATS:
        return None
    names = sorted(each.name for each in (*inputs, *constants))
    results = [f"y{index}" for index in range(form.results)]
    # ONNX has Mod of floats as C's fmod alone.
    attributes = form.attributes | ({"fmod": 1} if op == "Mod" and kind in FLOATS else {})
    node = helper.make_node(op, names, results, name=op, domain=form.domain, **attributes)
    given = [
        onnx.ValueInfoProto(name=name) if is_known else helper.make_tensor_value_info(name, TYPES[kind], form.shape)
        for name in results
    ]
    graph = helper.make_graph([node], "g", inputs, given, constants)
    opsets = [helper.make_opsetid("", OPSETS.get(op, 18)), helper.make_opsetid(MICROSOFT, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    if not is_known:
        return made
    try:
        return onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return None


def forms() -> Iterator[tuple[str, str, Form]]:
    """Yield name, operator and operands."""
    for name, form in FORMS.items():
        yield name, form.op or name, form
    for to, code in TYPES.items():
        yield f"Cast to {to}", "Cast", Form(attributes={"to": code})
    for op in ("ScatterElements", "ScatterND"):
        for reduction in REDUCTIONS:
            form = FORMS[op]
            yield f"{op} by {reduction}", op, replace(form, attributes=form.attributes | {"reduction": reduction})


def deep_forms() -> Iterator[tuple[str, str, Form]]:
    """Yield name, operator and operands of five axes; and of six, which no operator takes."""
    for name in DEEPENED:
        form = FORMS[name]
        operands = tuple(
            (*DEEP[:3], *each[1:]) if isinstance(each, tuple) and len(each) == len(SHAPE) else each
            for each in form.operands
        )
        yield f"{name} of five axes", name, replace(form, operands=operands, shape=DEEP)
    yield "CumSum of five axes", "CumSum", replace(FORMS["CumSum"], operands=(whole(4)[0],), shape=DEEP)
    zeros = numpy.zeros((*DEEP[:3], 1, 8), numpy.int64)
    row = Form((zeros, (*DEEP[:3], 1, 8)), {"axis": 3}, shape=DEEP)
    yield "ScatterElements of five axes", "ScatterElements", row
    for name in ("Abs", "Mul", "Softmax", "Transpose"):
        form = FORMS[name]
        attributes = {"perm": [0, 1, 2, 3, 5, 4]} if name == "Transpose" else form.attributes
        operands = tuple((1, *DEEP) for _ in form.operands)
        yield f"{name} of six axes", name, replace(form, attributes=attributes, operands=operands, shape=(1, *DEEP))


def feeds(proto: onnx.ModelProto) -> dict[str, numpy.ndarray]:
    """Return random operands; whole numbers are multiples of the last one."""
    random, arrays = numpy.random.default_rng(0), {}
    for place, given in enumerate(proto.graph.input):
        tensor = given.type.tensor_type
        sizes = [size.dim_value for size in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f":
            array = random.uniform(0.1, 2, sizes)
        else:
            # All differ, so that the largest are in one order.
            array = random.permutation(int(numpy.prod(sizes))).reshape(sizes) + 1
            array = (
                array * 17 if place == 0 and len(proto.graph.input) > 1 else array % 2 if dtype.kind == "b" else array
            )
            array = numpy.full(sizes, 17) if place and proto.graph.node[0].op_type == "Mod" else array
        arrays[given.name] = array.astype(dtype)
    return arrays


def difference(path: Path, request: QnnRequest, arrays: dict[str, numpy.ndarray]) -> float | None:
    """Return the largest difference from the CPU provider's numbers; ``None`` within f16, or if that lacks the type."""
    try:
        with running("ONNX Runtime"):
            expected = onnxruntime.InferenceSession(str(path)).run(None, arrays)
    except GraphpassError:
        return None
    found = request.infer(arrays).values()
    pairs = [[array.astype(float) for array in pair] for pair in zip(expected, found, strict=True)]
    if all(numpy.allclose(right, left, rtol=2e-2, atol=2e-2, equal_nan=True) for left, right in pairs):
        return None
    return max(float(numpy.abs(left - right).max()) for left, right in pairs)


def observe(proto: onnx.ModelProto) -> tuple[str | None, str | None, str | None, float | None]:
    """Return the predicted reason against HTP, and the runtime's error; the same of its numbers."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "model.onnx")
        onnx.save(proto, path)
        made = load(path)
        node = next(made.graph.producer(port.source()) for port in made.graph.of_op("Result"))
        predicted = why_on_cpu(made.graph, node)
        try:
            request = QnnRequest(made)
        except GraphpassError as error:
            return predicted, error.message, None, None
        return predicted, None, why_wrong(node), difference(path, request, feeds(proto))


if __name__ == "__main__":
    everything = [(*each, kind) for each in forms() for kind in TYPES]
    everything += [(*each, "f32") for each in deep_forms()]
    found = {
        f"{name}, {kind}": observe(proto)
        for name, op, form, kind in everything
        if (proto := model(op, form, kind)) is not None
    }
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
