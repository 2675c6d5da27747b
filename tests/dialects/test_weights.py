"""Weights of models: names, types and contents, found without reading them, and their digests."""

import hashlib
import itertools

import numpy
import onnx
import pytest

import graphpass
from graphpass.dialects.weights import digests_in, digests_of_weights, holder_of, weights_of
from graphpass.testing import parse_model

TEXT = """%x = Parameter : f32[4, 64]
%w = Constant : f32[64, 64]
%small = Constant : f32[64]
%h = Constant : f16[64, 64]
%a = MatMul(%x, %w)
%b = Add(%a, %small)
%c = Convert(%h) {to=f32}
%y = MatMul(%b, %c)
Result(%y) {name=y}"""


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_weights_of_more_than_1_kib(dialect):
    model = parse_model(TEXT, dialect)
    weights = {weight.name: weight for weight in weights_of(model)}
    assert {name: weight.described for name, weight in weights.items()} == {"w": "f32 [64, 64]", "h": "f16 [64, 64]"}
    assert [weights[name].size for name in "wh"] == [16384, 8192]
    holders = {node.name: holder_of(node) for node in model.graph.of_op("Constant")}
    assert all(holders[name] == weight.holder for name, weight in weights.items())
    assert len(weights_of(model, above=0)) > 2


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_digests_do_not_depend_on_where_a_weight_is_stored(dialect, tmp_path):
    model = parse_model(TEXT, dialect)
    path = tmp_path / ("m.onnx" if dialect == "onnx" else "m.xml")
    graphpass.save(model, path)
    stored = graphpass.load(path)
    found = [
        {weight.name: digest for weight, digest in digests_of_weights(weights_of(each)).items()}
        for each in (model, stored)
    ]
    assert found[0] == found[1]
    (value,) = [value for value in model.graph.of_op("Constant") if value.name == "w"]
    array = model.graph.constant(value.outputs[0], 2**20)
    assert found[0]["w"] == hashlib.sha256(array.tobytes()).hexdigest()


def test_weights_in_files_know_their_range(tmp_path):
    graphpass.save(parse_model(TEXT, "openvino"), tmp_path / "m.xml")
    weights = weights_of(graphpass.load(tmp_path / "m.xml"))
    ranges = sorted(weight.bytes_of[-2:] for weight in weights)
    assert all(start + length <= after for (start, length), (after, _) in itertools.pairwise(ranges))
    assert {weight.bytes_of for weight in weights_of(parse_model(TEXT))} == {None}


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_digests_after_rounding(half):
    model = parse_model(TEXT)
    (weight,) = [weight for weight in weights_of(model) if weight.name == "w"]
    (digest,) = digests_in(half, [weight]).values()
    array = numpy.frombuffer(weight.content, numpy.float32)
    if half == "f16":
        expected = array.astype(numpy.float16).tobytes()
    else:
        bits = array.view(numpy.uint32)
        expected = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16).tobytes()
    assert digest == hashlib.sha256(expected).hexdigest()


def test_digests_after_rounding_are_those_of_the_file(tmp_path):
    for number in (1.5, 2.5):
        model = parse_model(TEXT)
        tensor = next(tensor for tensor in model.proto.graph.initializer if tensor.name == "w")
        array = numpy.full(tuple(tensor.dims), number, numpy.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, "w"))
        onnx.save(model.proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        (weight,) = [weight for weight in weights_of(graphpass.load(tmp_path / "m.onnx")) if weight.name == "w"]
        (digest,) = digests_in("f16", [weight]).values()
        assert digest == hashlib.sha256(array.astype(numpy.float16).tobytes()).hexdigest()


def test_weights_of_one_name_are_numbered():
    model = parse_model(TEXT, "openvino")
    for op in model.ov_model.get_ops():
        if op.get_friendly_name() in {"w", "h"}:
            op.set_friendly_name("same")
    assert [weight.name for weight in weights_of(model)] == ["same", "same#2"]
