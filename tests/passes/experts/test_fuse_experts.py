"""fuse-experts: MoE for each form that exporters write, PyTorch's tokens, weights in a file, and what it leaves."""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import pytest
from hypothesis import assume, given, settings, strategies as st
from support.expert_graphs import experts
from support.fused_experts import assert_stays, findings, fused
from support.loaded import converted, exported
from support.operators import count_operators
from support.reference_tokens import generates_reference_tokens
from support.running_experts import run, tokens

from graphpass.verify import compare

#: Layers with experts of each export.
FIXTURES = {"deepseek_v3": 1, "gpt_oss": 2, "qwen3_moe": 2}


@pytest.mark.parametrize("name", FIXTURES)
def test_generates_the_reference_tokens(name):
    before = exported(f"{name}/onnx")
    after = converted(before, "ort").model
    kinds = count_operators(after)
    assert kinds["MoE"] == FIXTURES[name]
    # Nothing of the search for tokens stays; deepseek's own router has groups.
    assert not {"NonZero", "OneHot", "Tile"} & kinds.keys()
    assert name == "deepseek_v3" or not {"TopK", "ScatterElements"} & kinds.keys()
    assert generates_reference_tokens(after, name)
    assert compare(before, after, steps=4).passed  # of one row and of two, padded
    assert {verdict for verdict, _ in findings(after)} == {"fused"}
    assert {str(reason).partition(": ")[2] for _, reason in findings(before)} == {"run fuse-experts"}


def test_gpt_oss_runs_as_few_operators_as_the_builders(tmp_path):
    """The builder of onnxruntime-genai (0.18) writes 29, ours were 97 with the experts as exported."""
    after = converted(exported("gpt_oss/onnx"), "ort-genai").model
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(after.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(tmp_path / "m.onnx").graph.node
    assert len(nodes) <= 1.2 * 29
    assert [node.op_type for node in nodes].count("MoE") == 2


@settings(deadline=None, max_examples=25)
@given(
    form=st.sampled_from(["separate", "sorted", "dense", "gathered"]),
    router=st.sampled_from(["softmax first", "softmax last", "plain", "gathered", "sigmoid"]),
    columns=st.sampled_from(["apart", "pairs", "halves", "linear part first", "one"]),
    kind=st.sampled_from(["silu", "clamped", "relu"]),
    bias=st.booleans(),
    turned=st.booleans(),
)
def test_all_forms_compute_the_same(form, router, columns, kind, bias, turned):
    # MoE has two products with SwiGLU alone, and SwiGLU of two alone.
    assume({"one": {"silu", "relu"}}.get(columns, {"silu", "clamped"}) >= {kind})
    model = experts(form, router, columns, kind, bias=bias, turned=turned)
    after, done = fused(model)
    assert done.statistics == {"layers fused": 1, "layers left": 0, "weights rewritten": 4 if bias else 2}
    kinds = count_operators(after)
    assert kinds["MoE"] == 1
    assert kinds["TopK"] == kinds["Log"] == (router == "sigmoid")
    numpy.testing.assert_allclose(run(after, tokens()), run(model, tokens()), rtol=1e-4, atol=1e-4)
    assert not fused(after)[1].changed


def test_experts_are_recognized_by_their_number():
    model = experts("separate", order=(2, 0, 3, 1))
    numpy.testing.assert_allclose(run(fused(model)[0], tokens()), run(model, tokens()), rtol=1e-4, atol=1e-4)


def test_experts_of_f16_stay_f16():
    model = experts("dense", dtype=numpy.float16)
    after, _ = fused(model)
    given_weights = next(node for node in after.proto.graph.node if node.op_type == "MoE").input[2]
    (weight,) = (one for one in after.proto.graph.initializer if one.name == given_weights)
    assert weight.data_type == onnx.TensorProto.FLOAT16
    wanted = run(model, tokens(numpy.float16))
    numpy.testing.assert_allclose(run(after, tokens(numpy.float16)), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kind": "gelu"}, "a function of 2 products between the products of an expert is not an activation of MoE"),
        ({"kind": "gelu", "columns": "one"}, "a function of one product between the products of an expert"),
        ({"router": "signed"}, "weights of experts may be negative, because Tanh computes them"),
        ({"form": "separate", "order": (0, 1, 3)}, "experts [0, 1, 3] of 4 are found"),
        ({"form": "separate", "order": (0, 1, 1, 3)}, "experts [0, 1, 1, 3] of 4 are found"),
        ({"dtype": numpy.float64}, "tokens are of type f64, weights of f64; expected both of one type of f16 and f32"),
    ],
)
def test_unsupported_layers_stay(given, reason):
    """The pass notes what `check` prints."""
    assert_stays(experts(**({"form": "dense"} | given)), reason)


def test_other_sums_are_not_experts():
    """Attention over gathered rows, or a mean of them, has no weights that a router chose."""
    assert not findings(exported("llama/onnx"))
    assert not findings(exported("bloom/onnx"))


def test_early_opsets_are_skipped():
    model = experts("dense")
    model.proto.opset_import[0].version = 12
    _, done = fused(model)
    assert done.reason == "the model is of an opset before 13"
