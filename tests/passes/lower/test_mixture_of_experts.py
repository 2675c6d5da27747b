"""Lowering mixture-of-experts: the same numbers on ONNX Runtime, and a model that OpenVINO can read."""

from __future__ import annotations

from typing import Any

import numpy
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.decode import compiled
from verify.structure.comparing import is_equal

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.errors import UnsupportedError
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.lower.lower_operators import LowerOperators

EXPERTS, INNER, HIDDEN = 4, 16, 32


def weights(*names: str) -> dict[str, numpy.ndarray]:
    """Gate and linear part of the first product, and the second product."""
    random = numpy.random.default_rng(0)
    whole = {
        "gate": random.standard_normal([EXPERTS, INNER, HIDDEN]) / 4,
        "gate_bias": random.standard_normal([EXPERTS, INNER]),
        "linear": random.standard_normal([EXPERTS, INNER, HIDDEN]) / 4,
        "linear_bias": random.standard_normal([EXPERTS, INNER]),
        "second": random.standard_normal([EXPERTS, HIDDEN, INNER]) / 4,
        "second_bias": random.standard_normal([EXPERTS, HIDDEN]),
    }
    pairs = {
        "interleaved": numpy.stack([whole["gate"], whole["linear"]], 2).reshape(EXPERTS, 2 * INNER, HIDDEN),
        "interleaved_bias": numpy.stack([whole["gate_bias"], whole["linear_bias"]], 2).reshape(EXPERTS, 2 * INNER),
        "halves": numpy.concatenate([whole["gate"], whole["linear"]], 1),
        "halves_bias": numpy.concatenate([whole["gate_bias"], whole["linear_bias"]], 1),
    }
    return {name: (whole | pairs)[name].astype(numpy.float32) for name in names if name}


def build(*names: str, flat: bool = False, **given: Any) -> OnnxModel:
    """Inputs tokens and router, output mixed; ``names`` are the operator's weights in its order."""
    shape = ["count", HIDDEN] if flat else ["batch", "length", HIDDEN]
    node = helper.make_node("MoE", ["tokens", "router", *names], ["mixed"], "moe", domain="com.microsoft", **given)
    graph = helper.make_graph(
        [node],
        "moe",
        [
            helper.make_tensor_value_info("tokens", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("router", TensorProto.FLOAT, ["count", EXPERTS]),
        ],
        [helper.make_tensor_value_info("mixed", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in weights(*names).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def feeds(*, flat: bool = False) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(1)
    tokens = random.standard_normal([10, HIDDEN] if flat else [2, 5, HIDDEN])
    router = random.standard_normal([10, EXPERTS])
    return {"tokens": tokens.astype(numpy.float32), "router": router.astype(numpy.float32)}


def lowered(model: OnnxModel) -> OnnxModel:
    result = PassManager([LowerOperators()]).run(model)
    assert result.records[0].result.changed
    assert isinstance(result.model, OnnxModel)
    return result.model


def run(model: OnnxModel, *, flat: bool = False) -> numpy.ndarray:
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds(flat=flat))[0]


PLAIN = ("gate", "gate_bias", "second", "second_bias")
FUSED = ("interleaved", "interleaved_bias", "second", "second_bias")
GPT_OSS = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.0}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    ("names", "given"),
    [
        (PLAIN, {"k": 1}),
        (PLAIN, {"k": 3, "normalize_routing_weights": 1}),
        *((PLAIN, {"k": 2, "activation_type": kind}) for kind in ("relu", "silu", "gelu", "identity")),
        (("gate", "", "second"), {"k": 2, "activation_type": "silu"}),
        (FUSED, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}),
        (FUSED, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1, **GPT_OSS}),
    ],
    ids=str,
)
def test_both_runtimes_compute_the_same(names, given, flat):
    model = build(*names, flat=flat, **given)
    expected = run(model, flat=flat)
    after = lowered(model)
    assert not flat or is_equal(model, after, "mixed")
    numpy.testing.assert_allclose(run(after, flat=flat), expected, atol=1e-5)
    result = PassManager([ToOpenVINO()]).run(after).model
    assert isinstance(result, OpenVINOModel)
    numpy.testing.assert_allclose(compiled(result.ov_model)(feeds(flat=flat))[0], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("names", "given"),
    [
        (("halves", "halves_bias", "second", "second_bias"), {"activation_type": "swiglu", "swiglu_fusion": 2}),
        ((*PLAIN, "linear", "linear_bias"), {"activation_type": "swiglu", "swiglu_fusion": 0}),
        ((*PLAIN, "linear", "linear_bias"), {"activation_type": "silu"}),
    ],
    ids=str,
)
def test_forms_without_a_cpu_kernel(names, given):
    """They are the interleaved form with its weights laid out otherwise."""
    expected = run(build(*FUSED, k=2, activation_type="swiglu", swiglu_fusion=1))
    numpy.testing.assert_allclose(run(lowered(build(*names, k=2, **given))), expected, atol=1e-5)


def test_a_norm_after_the_operator_gets_its_type():
    """OpenVINO's frontend refused SkipSimplifiedLayerNormalization behind what it could not read."""
    model = build(*PLAIN, k=2, activation_type="silu")
    graph = model.proto.graph
    graph.initializer.append(numpy_helper.from_array(numpy.linspace(0.5, 2, HIDDEN, dtype=numpy.float32), "gamma"))
    inputs, outputs = ["tokens", "mixed", "gamma"], ["normed", "", "", "summed"]
    graph.node.append(
        helper.make_node("SkipSimplifiedLayerNormalization", inputs, outputs, "norm", domain="com.microsoft")
    )
    graph.output[0].name = "normed"
    expected = run(model)
    result = PassManager([ToOpenVINO()]).run(lowered(model)).model
    assert isinstance(result, OpenVINOModel)
    numpy.testing.assert_allclose(compiled(result.ov_model)(feeds())[0], expected, atol=1e-4)


def test_a_second_run_changes_nothing():
    result = PassManager([LowerOperators()]).run(lowered(build(*PLAIN)))
    assert not result.records[0].result.changed


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"use_sparse_mixer": 1}, "it has use_sparse_mixer = 1"),
        ({"activation_type": "tanh"}, "its activation is tanh"),
        ({"activation_type": "swiglu"}, "its SwiGLU has no third weight"),
    ],
)
def test_unsupported_forms_are_refused(given, reason):
    with pytest.raises(UnsupportedError, match=f"GP341: .* moe cannot be lowered: {reason}"):
        PassManager([LowerOperators()]).run(build(*PLAIN, **given))


def test_openvino_still_cannot_read_the_operator():
    """When this fails, openvino's frontend has learned it: see whether the pass is still needed."""
    with pytest.raises(UnsupportedError, match="GP311"):
        PassManager([ToOpenVINO()]).run(build(*PLAIN))
