"""The pass `rename-caches`: ports may change places, and inner tensors give way to them."""

import pytest
from support.loaded import exported, onnx_model, run_once

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError
from graphpass.verify import compare


def test_layers_are_numbered_by_the_option():
    result = run_once(exported("llama/onnx"), "rename-caches{layers=[3,7]}").model
    caches = analyze_caches(result).caches
    assert [(cache.read, cache.write) for cache in caches[2:]] == [
        ("past_key_values.7.key", "present.7.key"),
        ("past_key_values.7.value", "present.7.value"),
    ]
    assert compare(exported("llama/onnx"), result, steps=2).passed


def test_names_change_places():
    model = onnx_model("llama")
    renamed = run_once(model, "rename-caches{layers=[1,0]}").model
    assert [port.name for port in renamed.inputs][3:5] == ["past_key_values.1.key", "past_key_values.1.value"]
    assert compare(exported("llama/onnx"), renamed, steps=2).passed


def test_nothing_changes_if_names_and_sizes_are_right():
    assert not run_once(exported("llama/onnx"), "rename-caches").changed


def test_the_batch_gets_one_name_everywhere():
    result = run_once(exported("llama/onnx-genai"), "rename-caches").model
    assert {port.shape[0] for port in result.inputs} == {"batch_size"}


def test_layers_beyond_the_option_are_refused():
    with pytest.raises(UnsupportedError, match="GP342"):
        run_once(exported("llama/onnx"), "rename-caches{layers=[0]}")


def test_models_without_caches_are_refused():
    with pytest.raises(Exception, match="GP302"):
        run_once(exported("llama/onnx-nocache"), "rename-caches")
