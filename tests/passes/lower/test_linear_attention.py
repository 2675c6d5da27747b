"""Lowering linear-attention: the same numbers on ONNX Runtime, and a model that OpenVINO can read."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from onnx.reference import ReferenceEvaluator
from support.decode import compiled
from support.linear_attention import CHUNKS, FORMS, HEAD_COUNTS, RULES, build, compute_the_same, feeds, session

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.errors import UnsupportedError
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.lower.lower_operators import LowerOperators


def lowered(model: OnnxModel) -> OnnxModel:
    result = PassManager([LowerOperators()]).run(model)
    assert result.records[0].result.changed
    assert isinstance(result.model, OnnxModel)
    return result.model


def read(model: OnnxModel) -> OpenVINOModel:
    result = PassManager([ToOpenVINO()]).run(model).model
    assert isinstance(result, OpenVINOModel)
    return result


@settings(deadline=None, max_examples=40)
@given(form=FORMS, heads=HEAD_COUNTS, lengths=CHUNKS)
def test_onnx_runtime_computes_the_same(form, heads, lengths):
    model = build(form.pop("rule"), *heads, **form)
    compute_the_same(model, lowered(model), lengths)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("heads", [(2, 4, 2), (1, 6, 1), (2, 6, 2), (4, 4, 2)], ids=str)
def test_heads_of_keys_serve_several_of_values(rule, heads):
    queries, values, keys = heads
    model = build(rule, queries, values, key_heads=keys, scale=0.3)
    compute_the_same(model, lowered(model), [5, 1])


@pytest.mark.parametrize("rule", RULES)
def test_openvino_computes_the_same(rule):
    model = build(rule, 4, 2)
    request = compiled(read(lowered(model)).ov_model).create_infer_request()
    for length in (5, 1, 1):
        given = feeds(model, length, numpy.random.default_rng(length))
        found = request.infer(given)
        for port, want in enumerate(session(model).run(None, given)):
            numpy.testing.assert_allclose(found[port], want, atol=1e-4)


def test_the_operator_of_onnx_computes_the_same():
    """ONNX Runtime 1.31 does not take its opset yet."""
    own, contrib = lowered(build(domain="")), lowered(build())
    assert list(own.proto.graph.node) == list(contrib.proto.graph.node)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_the_operator_of_onnx_follows_its_definition(rule):
    model = build(rule, 4, 2, domain="")
    model.proto.opset_import[0].version, model.proto.ir_version = 27, 12
    given = feeds(model, 5, numpy.random.default_rng(0))
    for found, want in zip(
        session(lowered(build(rule, 4, 2, domain=""))).run(None, given),
        ReferenceEvaluator(model.proto).run(None, given),
        strict=True,
    ):
        numpy.testing.assert_allclose(found, want, atol=1e-5)


def test_the_state_is_found_again():
    for model in (lowered(build()), read(lowered(build()))):
        cache = next(cache for cache in graphpass.analyze_caches(model).caches if cache.read == "past")
        assert (cache.kind, cache.role, cache.write) == ("linear", "recurrent", "present")


def test_a_second_run_changes_nothing():
    result = PassManager([LowerOperators()]).run(lowered(build()))
    assert not result.records[0].result.changed


def test_refuses_a_window_of_states():
    with pytest.raises(UnsupportedError, match=r"GP341: .* layer cannot be lowered: it has state_window = 2"):
        PassManager([LowerOperators()]).run(build(state_window=2))


def test_refuses_a_rule_without_its_input():
    model = build("gated")
    del model.proto.graph.node[0].input[4]
    with pytest.raises(UnsupportedError, match="update_rule is gated, and input 4 is omitted"):
        PassManager([LowerOperators()]).run(model)


def test_openvino_still_cannot_read_the_operator():
    """When this fails, openvino's frontend has learned it: see whether the pass is still needed."""
    with pytest.raises(UnsupportedError, match="GP311"):
        read(build())
