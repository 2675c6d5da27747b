"""Findings that several targets share."""

import pytest
from support.caches import cache
from support.merged_decoders import merged_decoder

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import format_passes
from graphpass.engine.registry import get_target
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes
from graphpass.ir.miss import MissError
from graphpass.targets.rules import (
    attention_findings,
    encoder_error,
    later_steps,
    linear_finding,
    require_fused,
    require_onnx,
)
from graphpass.testing import parse_model, tiny_model
from graphpass.verify import compare

ONNX = tiny_model("llama", layers=2)
FUSED = """%input_ids = Parameter : i64[b, n]
%words = Constant : f32[9, 8]
%x = Gather(%words, %input_ids, 0)
%heads = Unsqueeze(%x, 1)
%y = ScaledDotProductAttention(%heads, %heads, %heads)
Result(%y) {name=logits}"""


def test_errors_name_the_target():
    error = encoder_error("paged", "cpu or gpu")
    assert (error.id, error.hint) == ("GP338", "convert it for cpu or gpu")
    assert "target paged" in error.message
    require_onnx(ONNX, "ort")
    with pytest.raises(UnsupportedError, match="GP366: target ort writes ONNX, but"):
        require_onnx(parse_model(FUSED, "openvino"), "ort")


@pytest.mark.parametrize("target", ["cpu", "ort", "web"])
def test_decoders_of_both_steps_are_converted_as_that_of_later_steps(target):
    model = merged_decoder(ONNX)
    passes, alone = (get_target(target).pipeline(one) for one in (model, ONNX))
    assert format_passes(passes) == f"select-branch,{format_passes(alone)}"
    result = PassManager(passes).run(model).model
    assert compare(model, result, steps=2).passed
    assert later_steps(ONNX) is None


def test_attention_that_is_decomposed_is_not_fused_and_names_the_remedy():
    inventory = analyze_caches(ONNX)
    findings = attention_findings(ONNX, inventory, lambda graph, attention: require_fused(attention), "fuse.cpp")
    assert [(finding.verdict, finding.layer, finding.source) for finding in findings] == [
        ("not fused", 0, "fuse.cpp"),
        ("not fused", 1, "fuse.cpp"),
    ]
    assert all("decomposed around a Softmax: run fuse-attention" in finding.reason for finding in findings)
    (first, _) = attention_findings(ONNX, inventory, lambda graph, attention: None, "fuse.cpp")
    assert (first.verdict, first.source) == ("fused", None)

    def refuse(graph, attention):
        raise MissError(attention.node, "no")

    assert {each.verdict for each in attention_findings(ONNX, inventory, refuse, "fuse.cpp", "wrong")} == {"wrong"}


def test_attention_without_a_growing_cache_is_plain():
    model = parse_model(FUSED, "openvino")

    def never(graph, attention):
        raise AssertionError

    (finding,) = attention_findings(model, analyze_caches(model), never, "fuse.cpp")
    assert (finding.verdict, finding.reason) == ("plain", "it reads no growing cache")


@pytest.mark.parametrize(("is_variable", "verdict"), [(True, "taken"), (False, "not fused")])
def test_states_are_taken_as_variables(is_variable, verdict):
    state = cache("s", kind="linear", axes=Axes(batch=0), layer=3)
    finding = linear_finding(state, "state.cpp", is_variable=is_variable)
    assert (finding.verdict, finding.layer, finding.holds) == (verdict, 3, is_variable)
