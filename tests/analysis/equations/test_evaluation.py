"""`Evaluation`: tensors of a step, and the reasons that it computes none."""

from __future__ import annotations

import itertools

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphpass.analysis.equations.evaluation import Evaluation
from graphpass.analysis.symbolic.arrays import computed
from graphpass.analysis.symbolic.equal_sizes import dimension
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.miss import MissError


def evaluated(nodes, given, constants=(), lengths=None):
    """The last node's output; tensors of ``given`` are inputs, as are activations ``x`` ``[n, 4]``."""
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}
    ports += [helper.make_tensor_value_info(name, kinds[held.dtype.kind], held.shape) for name, held in given.items()]
    results = [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.UNDEFINED, None)]
    held = [numpy_helper.from_array(numpy.asarray(value), name) for name, value in dict(constants).items()]
    graph = helper.make_graph(nodes, "g", ports, results, held)
    del graph.output[:]
    graph.output.append(onnx.ValueInfoProto(name=nodes[-1].output[0]))
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    inputs = {model.graph.parameters[name]: value for name, value in given.items()}
    known = {dimension(name): length for name, length in dict(lengths or {}).items()}
    evaluation = Evaluation(model.graph, model.analysis(infer_sizes), known.get, inputs)
    return evaluation.of(model.graph.nodes[-1].source())


def test_shapes_of_activations_follow_from_lengths():
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["y"])]
    assert evaluated(nodes, {}, lengths={"n": 3}).shape == (3, 4)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "wanted"),
    [
        ("CumSum", ["a", "axis"], {}, [[1, 3, 6], [4, 9, 15]]),
        ("Einsum", ["a", "a"], {"equation": "ij,ij->i"}, [14, 77]),
        ("Flatten", ["a"], {"axis": 0}, [[1, 2, 3, 4, 5, 6]]),
        ("ReduceSum", ["a", "last"], {}, [[6], [15]]),
        ("ReduceSum", ["a", "last"], {"keepdims": 0}, [6, 15]),
        ("NonZero", ["places"], {}, [[0, 1, 1], [0, 0, 1]]),
        ("GatherND", ["a", "pairs"], {}, [2, 6]),
        ("GatherElements", ["a", "places"], {"axis": 1}, [[3, 1], [5, 5]]),
        ("Max", ["a", "four"], {}, [[4, 4, 4], [4, 5, 6]]),
        ("Tile", ["a", "twice"], {}, [[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]]),
        ("Trilu", ["a"], {"upper": 0}, [[1, 0, 0], [4, 5, 0]]),
        ("ScatterElements", ["a", "places", "some"], {"axis": 1}, [[5, 2, 4], [4, 7, 6]]),
        ("ScatterND", ["a", "rows", "news"], {}, [[1, 2, 3], [7, 8, 9]]),
    ],
)
def test_operators_evaluated_besides_folding(op, inputs, attributes, wanted):
    constants = {
        "axis": 1,
        "last": [1],
        "places": [[2, 0], [1, 1]],
        "pairs": [[0, 1], [1, 2]],
        "four": 4,
        "twice": [1, 2],
        "rows": [[1]],
        "news": [[7, 8, 9]],
        "some": [[4, 5], [6, 7]],
    }
    given = {"a": numpy.array([[1, 2, 3], [4, 5, 6]])}
    found = evaluated([helper.make_node(op, inputs, ["y"], **attributes)], given, constants)
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, [[0.5, 2, 5]]),
        ({"exclusive": 1}, [[0, 0.5, 2]]),
        ({"reverse": 1}, [[5, 4.5, 3]]),
        ({"exclusive": 1, "reverse": 1}, [[4.5, 3, 0]]),
    ],
)
def test_cumulative_sums_are_computed(attributes, wanted):
    given = {"a": numpy.array([[0.5, 1.5, 3]], numpy.float32)}
    found = evaluated([helper.make_node("CumSum", ["a", "axis"], ["y"], **attributes)], given, {"axis": 1})
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([helper.make_node("Softmax", ["x"], ["y"])], "Softmax is not computed ahead"),
        ([helper.make_node("Cos", ["x"], ["y"])], "Parameter is not computed ahead"),
        ([helper.make_node("CumSum", ["a", "axis"], ["y"], reverse=1)], "CumSum cannot be computed ahead"),
        ([helper.make_node("Gather", ["a", "far"], ["y"])], "Gather cannot be computed ahead"),
    ],
)
def test_a_miss_names_its_reason(nodes, reason):
    with pytest.raises(MissError) as caught:
        evaluated(nodes, {"a": numpy.array([[1, 2], [3, 4]])}, {"axis": 1, "far": 9})
    assert caught.value.miss.reason.startswith(reason)


def test_long_chains_need_no_recursion():
    names = ["a", *(f"v{number}" for number in range(1500))]
    nodes = [helper.make_node("Add", [one, "one"], [two]) for one, two in itertools.pairwise(names)]
    assert evaluated(nodes, {"a": numpy.array([1])}, {"one": 1}).tolist() == [1501]


@pytest.mark.parametrize("given", [{}, {"interleaved": 1}])
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("has_positions", [True, False])
def test_rotation_equals_onnxruntime(domain, given, has_positions):
    """Both operators of this name: com.microsoft takes positions first, and ONNX last or not at all."""
    if domain and not has_positions:
        return
    random = numpy.random.default_rng(0)
    held = {"v": random.standard_normal((2, 3, 4, 8)).astype(numpy.float32)}
    angles = random.standard_normal((9, 3) if has_positions else (2, 4, 3))
    held |= {"cos": numpy.cos(angles).astype(numpy.float32), "sin": numpy.sin(angles).astype(numpy.float32)}
    held |= {"p": numpy.array([[0, 1, 2, 3], [4, 5, 6, 8]])} if has_positions else {}
    names = ["v", "p", "cos", "sin"] if domain else ["v", "cos", "sin", *(["p"] if has_positions else [])]
    given = {**given, "rotary_embedding_dim": 6, "num_heads": 3}
    node = helper.make_node("RotaryEmbedding", names, ["y"], domain=domain, **given)
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in held.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(helper.make_graph([node], "g", ports, [result]), opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    model = OnnxModel(proto)
    (rotated,) = model.graph.of_op("RotaryEmbedding")
    operands = {value: held[value.name] for value in rotated.inputs if value is not None}
    found = computed(model.graph, rotated, 0, operands, 1000)
    numpy.testing.assert_allclose(found, session.run(None, held)[0], atol=1e-6)
