"""Past and present, paired by dataflow."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.cache_graphs import Renaming, TinyDecoder, renamed, shuffled
from support.loaded import onnx_model, openvino_model

import graphpass
from graphpass.analysis.caches.pairs import appended, find_pairs, is_stateful, may_be_past
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.graph import Value


def names(model: graphpass.Model) -> dict[str, str]:
    return {pair.read.name: pair.write.name for pair in find_pairs(model) if pair.write is not None}


@pytest.mark.parametrize("variant", ["onnx", "onnx-genai", "ov-stateless"])
class TestTwelveLayers:
    def test_pairing_ignores_the_order_of_names(self, variant):
        model = openvino_model("llama_12l", variant) if variant.startswith("ov") else onnx_model("llama_12l", variant)
        expected = {
            f"past_key_values.{i}.{role}": f"present.{i}.{role}" for i in range(12) for role in ("key", "value")
        }
        assert names(model) == expected

    def test_wrong_names_do_not_mispair(self, variant):
        """Layers 1, 2, 10 and 11 swap their names on the present side only."""
        model = openvino_model("llama_12l", variant) if variant.startswith("ov") else onnx_model("llama_12l", variant)
        swapped = {"1": "10", "10": "1", "2": "11", "11": "2"}

        def lie(name: str) -> str:
            if not name.startswith("present."):
                return name
            _, layer, role = name.split(".")
            return f"present.{swapped.get(layer, layer)}.{role}"

        expected = {
            f"past_key_values.{i}.{role}": lie(f"present.{i}.{role}") for i in range(12) for role in ("key", "value")
        }
        assert names(renamed(model, lie)) == expected


def test_pairs_come_in_the_order_of_their_reads():
    model = shuffled(renamed(openvino_model("llama_12l", "ov-stateless"), Renaming(4)), 8)
    indices = [pair.read.index for pair in find_pairs(model)]
    assert indices == sorted(indices)
    assert len(set(indices)) == 24


def test_variables_pair_by_id():
    pairs = find_pairs(openvino_model("granitemoehybrid"))
    assert len(pairs) == 8
    assert all(pair.write.attributes == pair.read.attributes for pair in pairs)


def test_a_variable_without_assign():
    initial = ops.parameter(openvino.PartialShape([-1, 2]), openvino.Type.f32)
    info = openvino.op.util.VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape([-1, 2]), openvino.Type.f32, "v"
    variable = openvino.op.util.Variable(info)
    read = openvino.opset6.read_value(initial, variable)
    sink = openvino.opset6.assign(read, variable)
    native = openvino.Model([ops.result(read)], [sink], [initial], "")
    native.remove_sink(sink)
    (pair,) = find_pairs(OpenVINOModel(native))
    assert (pair.present, pair.write) == (None, None)


@pytest.mark.parametrize("name", ["llama", "lfm2", "mamba"])
def test_stateful_models_are_recognized(name):
    assert is_stateful(openvino_model(name))
    assert not is_stateful(openvino_model(name, "ov-stateless"))


def test_only_kv_caches_are_appended():
    model = openvino_model("lfm2", "ov-stateless")
    found = {pair.read.name.split(".")[2]: appended(model.graph, pair) is not None for pair in find_pairs(model)}
    assert found == {"conv": False, "key": True, "value": True}


@pytest.mark.parametrize(
    ("shape", "element_type", "expected"),
    [
        ((None, 2, None, 16), "f32", True),
        ((None, 64, 4), "f16", True),
        (None, "dynamic", True),
        ((None, None), "f32", False),
        ((None, None, None), "i64", False),
        ((None, 1, None, None), "boolean", False),
    ],
)
def test_candidates_for_pasts_are_found(shape, element_type, expected):
    assert may_be_past(Value(0, 0, "x", shape, element_type)) == expected


def test_one_output_goes_to_one_input_only():
    """Two inputs reach one output; the nearer one gets it."""
    near, far = (
        ops.parameter(openvino.PartialShape([-1, 3, 4]), openvino.Type.f32, name=name) for name in ("near", "far")
    )
    decayed = ops.multiply(
        ops.exp(ops.multiply(far, ops.constant(numpy.float32(0.5)))), ops.constant(numpy.float32(0.5))
    )
    native = openvino.Model([ops.result(ops.add(near, decayed), name="next")], [far, near], "")
    assert names(OpenVINOModel(native)) == {"near": "next"}


def test_another_layers_past_is_never_nearer():
    """Without names, and with presents in reverse order."""
    model = shuffled(renamed(TinyDecoder(layers=6, fused=False).build(), rename := Renaming(2)), 11)
    expected = {
        rename(f"past_key_values.{i}.{role}"): rename(f"present.{i}.{role}")
        for i in range(6)
        for role in ("key", "value")
    }
    assert names(model) == expected
