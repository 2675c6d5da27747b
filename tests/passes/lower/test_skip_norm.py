"""Lowering skip-norm: OpenVINO keeps epsilons of norms in f16 and bf16."""

from __future__ import annotations

from collections import Counter

import numpy
import onnxruntime
import pytest
from onnx import TensorProto, helper

from graphpass.analysis.equations.norms import find_epsilons
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import UnsupportedError

EPSILON = 3e-8


def build(code: int = TensorProto.FLOAT16, *, bias: bool = False, outputs: int = 4, mean: bool = False) -> OnnxModel:
    """Inputs x and skip, outputs normed and total."""
    info, node = helper.make_tensor_value_info, helper.make_node
    names = ["x", "skip", "gamma", *(["bias"] if bias else [])]
    made = ["normed", "mean" if mean else "", "", "total"][:outputs]
    nodes = [node("SkipSimplifiedLayerNormalization", names, made, "norm", domain="com.microsoft", epsilon=EPSILON)]
    ports = [info(name, code, ["batch", "length", 64]) for name in ("x", "skip")]
    kinds = {"normed": code, "total": code, "mean": TensorProto.FLOAT}
    results = [info(name, kinds[name], None) for name in made if name]
    weights = [helper.make_tensor(name, code, [64], numpy.linspace(0.5, 1.5, 64).tolist()) for name in names[2:]]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "norm", ports, results, weights)
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def lowered(model: OnnxModel) -> OnnxModel:
    result = PassManager(parse("lower-operators")).run(model).model
    assert isinstance(result, OnnxModel)
    return result


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", [1, 4])
def test_the_same_numbers_and_one_norm(bias: bool, outputs: int) -> None:
    model = build(bias=bias, outputs=outputs)
    after = lowered(model)
    assert Counter(node.op for node in after.graph.nodes if node.op not in {"Constant", "Parameter", "Result"}) == {
        "Add": 1 + bias,
        "SimplifiedLayerNormalization": 1,
    }
    assert [port.name for port in after.outputs] == [port.name for port in model.outputs]
    random = numpy.random.default_rng(3)
    # So small that epsilon counts.
    fed = {name: (random.standard_normal((2, 3, 64)) * 2e-4).astype(numpy.float16) for name in ("x", "skip")}
    results = [
        onnxruntime.InferenceSession(one.proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, fed)
        for one in (model, after)
    ]
    for wanted, got in zip(*results, strict=True):
        numpy.testing.assert_allclose(got.astype("f4"), wanted.astype("f4"), rtol=4e-3, atol=1e-6)
    assert not PassManager(parse("lower-operators")).run(after).changed


@pytest.mark.parametrize("code", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_openvino_keeps_the_epsilon(code: int) -> None:
    """The frontend makes 1e-6 of f16 1.013e-6, and 3e-8 is 0."""
    kept = PassManager(parse("lower-operators,to-openvino,change-precision")).run(build(code)).model
    lost = PassManager(parse("to-openvino,change-precision")).run(build(code)).model
    (found,) = (number for _, number in find_epsilons(kept))
    assert found == pytest.approx(EPSILON, rel=1e-6)
    assert [number for _, number in find_epsilons(lost)] != [pytest.approx(EPSILON, rel=1e-4)]


def test_f32_stays() -> None:
    assert not PassManager(parse("lower-operators")).run(build(TensorProto.FLOAT)).changed


def test_a_mean_that_is_read_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"GP341.*norm cannot be lowered: its mean or inverse deviation is read"):
        lowered(build(mean=True))
