"""Weights of equal bytes have one identity in both models, wherever they are stored."""

import numpy
import onnx

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.testing import parse_model, run, tiny_model
from graphpass.verify.identities import identify

TEXT = """%x = Parameter : f32[n, 64]
%first = Constant : f32[64, 64]
%second = Constant : f32[64, 64]
%a = MatMul(%x, %first) : f32[n, 64]
%b = MatMul(%a, %second) : f32[n, 64]
Result(%b) {name=y}"""


def by_name(model, contents):
    return {model.graph.nodes[node].name: identity for node, identity in contents.items()}


def identities(reference, candidate):
    return tuple(map(by_name, (reference, candidate), identify(reference, candidate)))


def test_equal_bytes_are_identified_under_other_names():
    left, right = identities(parse_model(TEXT), parse_model(TEXT.replace("%second", "%other").replace("%first", "%f")))
    assert left.keys() == {"first", "second"}
    assert not set(left.values()) & set(right.values())
    left, right = identities(parse_model(TEXT), parse_model(TEXT))
    assert left == right
    assert len(set(left.values())) == 2


def test_dialects_share_identities():
    model = tiny_model("llama")
    ours, theirs = identify(model, run(model, "to-openvino"))
    weights = {node: identity for node, identity in ours.items() if isinstance(identity, str | bytes)}
    assert len(weights) > 10
    assert set(weights.values()) <= set(theirs.values())


def test_one_changed_element_is_another_identity():
    first, second = (parse_model(TEXT) for _ in range(2))
    tensor = next(tensor for tensor in second.proto.graph.initializer if tensor.name == "second")
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[3, 4] += 1
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, "second"))
    left, right = identities(first, second)
    assert left["first"] == right["first"]
    assert left["second"] != right["second"]


def test_weights_in_f16_have_the_identity_of_those_they_are_rounded_from():
    model = parse_model(TEXT)
    left, right = identities(model, run(model, "change-precision{to=f16}"))
    assert len(left) == 2
    assert set(left.values()) <= set(right.values())


def test_bytes_in_the_same_place_of_a_file_are_not_read(tmp_path):
    proto = parse_model(TEXT).proto
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    models = [graphpass.load(tmp_path / "m.onnx") for _ in range(2)]
    assert all(isinstance(model, OnnxModel) for model in models)
    numpy.zeros(8192, "f4").tofile(tmp_path / "m.data")
    left, right = identities(*models)
    assert left == right
    assert left["first"] != left["second"]
