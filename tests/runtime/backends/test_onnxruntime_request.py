"""Models opened in ONNX Runtime."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.models import export

from graphpass.dialects.text import noise, parse_model
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest, weights_in_place


def test_a_path_that_is_not_text_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"bad\xff")
    try:
        shutil.copytree(export("llama", "onnx"), folder)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    with pytest.raises(UnsupportedError, match="GP321: ONNX Runtime requires paths in UTF-8, got ") as raised:
        open_session(load(folder))
    assert raised.value.hint == "rename the file or its folder"


def test_profiles_name_operators_and_providers(tmp_path):
    model = parse_model("%x = Parameter : f32[4]\n%y = Exp(%x)\n%z = Sin(%y)\nResult(%z) {name=z}")
    request = OnnxRuntimeRequest(model, exact=True, profile=tmp_path)
    request.infer({"x": np.zeros(4, np.float32)})
    assert sorted(request.ran().values()) == [("Exp", "CPUExecutionProvider"), ("Sin", "CPUExecutionProvider")]


def test_products_of_four_bits_are_computed_in_f32_if_exact():
    text = """%x = Parameter : f32[4, 32]
    %w = Constant : u8[8, 1, 16]
    %s = Constant : f32[8]
    %y = com.microsoft.MatMulNBits(%x, %w, %s) {K=32, N=8, bits=4, block_size=32, accuracy_level=4}
    Result(%y) {name=y}"""
    model, feeds = parse_model(text), {"x": noise("f32", (4, 32), "x")}
    exact, rounded = (OnnxRuntimeRequest(model, is_exact).infer(feeds)["y"] for is_exact in (True, False))
    bytes_, scale = (model.graph.constant(node.outputs[0], 1 << 20) for node in model.graph.of_op("Constant"))
    levels = np.stack([bytes_ & 15, bytes_ >> 4], -1).reshape(8, 32).astype(np.float32) - 8
    expected = feeds["x"] @ (levels * scale[:, None]).T
    np.testing.assert_allclose(exact, expected, atol=1e-5)
    assert np.abs(rounded - expected).max() > 1e-4
    (node,) = model.proto.graph.node
    assert next(entry.i for entry in node.attribute if entry.name == "accuracy_level") == 4


def test_weights_may_stay_in_place():
    model = parse_model(
        "%x = Parameter : f32[2, 32]\n%w = Constant : f32[32, 8]\n%y = MatMul(%x, %w)\nResult(%y) {name=y}"
    )
    feeds = {"x": noise("f32", (2, 32), "x")}
    with weights_in_place():
        in_place = OnnxRuntimeRequest(model, exact=True)
    np.testing.assert_allclose(
        in_place.infer(feeds)["y"], OnnxRuntimeRequest(model, exact=True).infer(feeds)["y"], atol=1e-6
    )


def test_refused_models_and_failed_runs_have_ids():
    unknown = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}")
    unknown.proto.graph.node[0].op_type = "Unheard"
    unknown.mark_edited()
    with pytest.raises(UnsupportedError) as error:
        OnnxRuntimeRequest(unknown, exact=True)
    assert error.value.id == "GP321"
    shaped = parse_model("%x = Parameter : f32[n]\n%y = Reshape(%x, [2, 2])\nResult(%y) {name=y}")
    with pytest.raises(UnsupportedError) as error:
        OnnxRuntimeRequest(shaped, exact=True).infer({"x": np.zeros(5, np.float32)})
    assert error.value.id == "GP322"
