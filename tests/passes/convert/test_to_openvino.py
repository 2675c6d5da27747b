"""to-openvino: names, types and shapes stay, and failures name their cause."""

from __future__ import annotations

import subprocess
import sys

import numpy
import onnxruntime
import openvino
import pytest
from onnx import TensorProto, helper
from support.converted_nodes import convert, model_of
from support.loaded import exported, openvino_after
from support.models import export, fixtures
from support.quick_cases import quick_files

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.errors import UnsupportedError
from graphpass.io import load, save
from graphpass.passes.convert.to_openvino import ToOpenVINO

CONVERTIBLE = sorted(
    path.relative_to(fixtures()) for path in fixtures().rglob("*.onnx") if path.parent.parent.name != "lfm2"
)


@pytest.mark.parametrize("file", quick_files(CONVERTIBLE), ids=str)
def test_ports_stay(file):
    before = exported(str(file))
    after = openvino_after(before, ToOpenVINO())
    for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
        assert [port.name for port in old] == [port.name for port in new]
        assert [port.element_type for port in old] == [port.element_type for port in new]
        for given, port in zip(old, new, strict=True):
            if given.shape is not None and port.shape is not None:
                known = [(a, b) for a, b in zip(given.shape, port.shape, strict=True) if isinstance(a, int)]
                assert all(a == b for a, b in known), (given, port)


@pytest.mark.parametrize(("name", "variant"), [("llama", "onnx"), ("gpt2", "onnx"), ("t5", "onnx/encoder_model.onnx")])
def test_output_is_deterministic(tmp_path, name, variant):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        save(convert(load(fixtures() / name / variant)), tmp_path / folder / "model.xml")
        # Numbers that OpenVINO gives to nodes without a name count up over the life of a process.
        openvino.opset13.relu(openvino.opset13.parameter([1]))
    for file in ("model.xml", "model.bin"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_first_conversion_of_a_process_is_like_any_other():
    """The names that OpenVINO makes up count from 0 in each process, and get in the way of an export's at first."""
    program = (
        "import sys, graphpass\nfrom graphpass.passes.convert.to_openvino import ToOpenVINO\n"
        "for _ in range(2): print(ToOpenVINO().run(graphpass.load(sys.argv[1])).model.digest())"
    )
    command = [sys.executable, "-c", program, str(export("llama", "onnx"))]
    first, second = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert first == second


def test_no_output_has_an_empty_name():
    converted = ToOpenVINO().run(graphpass.load(export("qwen3", "onnx-genai"))).model.ov_model
    assert not [op for op in converted.get_ops() for output in op.outputs() if "" in output.get_names()]


@pytest.mark.parametrize("name", ["Add_5", "Add_0", "MatMul_12"])
def test_names_resembling_generated_ones_stay(name):
    nodes = [
        helper.make_node("Add", ["x", "x"], ["m"], name=name),
        helper.make_node("LayerNormalization", ["m", "w"], ["n"], name="Multiply_7"),
        helper.make_node("Mul", ["n", "n"], ["y"], name="last"),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0] * 4)
    for _ in range(3):
        converted = convert(model_of(*nodes, weights=[weight])).clone()
        names = [op.get_friendly_name() for op in converted.ov_model.get_ops()]
        assert {name, "Multiply_7", "w", "x"} <= set(names)
        assert len(set(names)) == len(names)
    assert converted.digest() == convert(model_of(*nodes, weights=[weight])).digest()


def test_nodes_keep_their_names():
    before = load(export("llama", "onnx"))
    assert isinstance(before, OnnxModel)
    after = {op.get_friendly_name() for op in convert(before).clone().ov_model.get_ops()}
    softmaxes = {node.name for node in before.proto.graph.node if node.op_type == "Softmax"}
    assert softmaxes
    assert softmaxes <= after


def test_edited_in_memory_with_external_data():
    model = load(export("llama", "onnx-genai"))
    assert isinstance(model, OnnxModel)
    edited = model.clone()
    edited.proto.graph.node[-1].name = "renamed"
    edited.mark_edited()
    converted = convert(edited)
    assert converted.inputs == convert(model).inputs
    # The weights are read after the temporary files are gone.
    assert weight_of(converted) == weight_of(convert(model))


def weight_of(model: OpenVINOModel) -> float:
    constants = [op for op in model.ov_model.get_ops() if op.get_type_name() == "Constant"]
    weights = [op.data for op in constants if op.get_output_element_type(0) == openvino.Type.f32]
    assert weights
    return sum(float(numpy.abs(weight).sum()) for weight in weights)


def test_computes_the_same():
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=1)]
    model = model_of(*nodes)
    data = numpy.random.default_rng(0).standard_normal([3, 4]).astype(numpy.float32)
    given = {"x": data, "flag": numpy.array(True)}
    expected = onnxruntime.InferenceSession(model.proto.SerializeToString()).run(["y"], given)[0]
    compiled = openvino.compile_model(convert(model).ov_model, "CPU")
    numpy.testing.assert_allclose(compiled(given)["y"], expected, atol=1e-6)


def test_unsupported_operators_of_a_real_export():
    with pytest.raises(UnsupportedError) as failure:
        convert(load(export("lfm2", "onnx-genai")))
    assert failure.value.id == "GP311"
    assert "com.microsoft.CausalConvWithState (2: /model/layers.0/conv/CausalConvWithState, " in failure.value.message
    assert "run lower-operators before to-openvino" in str(failure.value.hint)
    assert "\n" not in failure.value.message


@pytest.mark.parametrize(
    ("operator", "domain", "error_id"),
    [
        ("CausalConvWithState", "com.microsoft", "GP311"),
        ("LinearAttention", "com.microsoft", "GP311"),
        ("MoE", "com.microsoft", "GP311"),
        ("QMoE", "com.microsoft", "GP311"),
        ("RotaryEmbedding", "com.microsoft", "GP312"),
        ("TensorScatter", "", "GP311"),
    ],
)
def test_a_lowerable_operator_names_the_pass(operator, domain, error_id):
    node = helper.make_node(operator, ["x", "x"], ["y"], domain=domain)
    with pytest.raises(UnsupportedError) as failure:
        convert(model_of(node, domains=("com.microsoft",)))
    assert failure.value.id == error_id
    assert failure.value.hint == "run lower-operators before to-openvino, as graphpass convert --target does"
    node.output[0] = "z"
    with pytest.raises(UnsupportedError) as failure:
        convert(model_of(node, helper.make_node("Zork", ["z"], ["y"]), domains=("com.microsoft",)))
    assert "put " not in str(failure.value.hint)


def largest(count: int) -> OnnxModel:
    """Return the places of the largest elements of 40."""
    weights = [helper.make_tensor("k", TensorProto.INT64, [1], [count])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 40])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("TopK", ["x", "k"], ["values", "y"])], "g", [x], [y], weights)
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def test_the_first_of_equal_elements_is_taken():
    ties = numpy.zeros([2, 40], numpy.float32)
    ties[:, 20:] = 1
    model = largest(4)
    expected = onnxruntime.InferenceSession(model.proto.SerializeToString()).run(None, {"x": ties})[0]
    compiled = openvino.Core().compile_model(convert(model).ov_model, "CPU")
    numpy.testing.assert_array_equal(compiled({"x": ties})["y"], expected)


def test_a_large_selection_stays_fast():
    (top,) = [op for op in convert(largest(32)).ov_model.get_ops() if op.get_type_name() == "TopK"]
    assert not top.get_attributes()["stable"]


def test_every_unsupported_operator_is_named():
    body = helper.make_graph(
        [helper.make_node("Inner", ["c"], ["t"], domain="my.own-domain", name="inside")],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], domain="my.own-domain", name="n1"),
        helper.make_node("Bar-2", ["a"], ["b"], domain="com.microsoft", name="n2"),
        helper.make_node("Zork", ["b"], ["c"]),
        helper.make_node("If", ["flag"], ["d"], then_branch=body, else_branch=other),
        helper.make_node("Foo", ["d"], ["y"], domain="my.own-domain", name="n4"),
    ]
    with pytest.raises(UnsupportedError) as failure:
        convert(model_of(*nodes, domains=("my.own-domain", "com.microsoft")))
    assert failure.value.id == "GP311"
    message = failure.value.message
    assert "my.own-domain.Foo (2: n1, n4)" in message
    assert "com.microsoft.Bar-2 (1: n2)" in message
    assert "ai.onnx.Zork (1: c)" in message


def test_unsupported_operator_in_a_body():
    branches = {}
    for branch, kind in (("then_branch", "Inner"), ("else_branch", "Relu")):
        domain = "my.own-domain" if kind == "Inner" else ""
        result = helper.make_tensor_value_info(branch, TensorProto.FLOAT, None)
        node = helper.make_node(kind, ["x"], [branch], domain=domain, name="inside")
        branches[branch] = helper.make_graph([node], branch, [], [result])
    with pytest.raises(UnsupportedError, match=r"my\.own-domain\.Inner \(1: inside\)"):
        convert(model_of(helper.make_node("If", ["flag"], ["y"], **branches), domains=("my.own-domain",)))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (helper.make_node("MatMul", ["x", "w"], ["y"], name="mm"), "at MatMul y: Incompatible MatMul matrix dimension"),
        (helper.make_node("Add", ["x", "nowhere"], ["y"]), "nowhere"),
        (helper.make_node("Reshape", ["x"], ["y"]), "at Reshape y: Any was not initialized."),
    ],
    ids=["dimensions", "input", "missing input"],
)
def test_broken_graphs_are_refused(node, words):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 2], [0.0] * 6)
    with pytest.raises(UnsupportedError) as failure:
        convert(model_of(node, weights=[weight]))
    assert failure.value.id == "GP312"
    assert words in failure.value.message
    assert "\n" not in failure.value.message
    assert "src/" not in failure.value.message
