"""The pass `fuse-linear-attention`: loops of exporters and of our own, the numbers, and what it leaves."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from support import linear_attention
from support.cache_graphs import Renaming, renamed
from support.graph_builder import HEADS, SIZE, VOCABULARY, GraphBuilder, builder_with_hidden_states
from support.linear_attention import CHUNKS, FORMS, HEAD_COUNTS, build, compute_the_same
from support.loop_forms import STATE, over_tokens, recurrent
from support.models import exporters, hybrids
from support.reference_tokens import greedy_tokens

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify import compare


def fused(model: OnnxModel, passes: str = "fuse-linear-attention") -> tuple[OnnxModel, Any]:
    result = graphpass.PassManager(graphpass.parse(passes)).run(model)
    assert isinstance(result.model, OnnxModel)
    return result.model, result.records[0].result


def kinds(model: OnnxModel) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]


@settings(deadline=None, max_examples=20)
@given(form=FORMS, heads=HEAD_COUNTS, lengths=CHUNKS)
def test_a_scan_is_fused_to_the_operator_again(form, heads, lengths):
    scan, _ = fused(build(form.pop("rule"), *heads, **form), "lower-operators")
    model, result = fused(scan)
    assert result.statistics == {"layers fused": 1, "layers left": 0}
    assert "LinearAttention" in kinds(model)
    assert "Scan" not in kinds(model)
    compute_the_same(scan, model, lengths)


def test_heads_of_128_are_fused(monkeypatch):
    """Corrections by keys of 128 numbers cancel most digits of what is compared."""
    monkeypatch.setattr(linear_attention, "KEY_DIM", 128)
    monkeypatch.setattr(linear_attention, "VALUE_DIM", 128)
    scan, _ = fused(build("gated_delta", 16, 16), "lower-operators")
    assert fused(scan)[1].statistics == {"layers fused": 1, "layers left": 0}


def step(work, loop: str = "Scan", state: str | None = None) -> OnnxModel:
    """A model with one recurrent layer; ``work(body, state, token)`` returns the new state and a result."""
    build = builder_with_hidden_states("input_ids")
    past = build.input("past", STATE)
    key, value, query = (build.new([0, 0, HEADS, SIZE]) for _ in range(3))
    final, out = over_tokens(build, loop, state or past, STATE, [key, value, query], work)
    build.present(final, "present", STATE)
    rows = build.op("Reshape", out, build.ints(0, 0, HEADS * SIZE))
    build.output(build.op("MatMul", rows, build.weight(HEADS * SIZE, VOCABULARY)), "logits", ["B", "N", VOCABULARY])
    return build.model()


def column(body: GraphBuilder, vector: str) -> str:
    return body.op("Unsqueeze", vector, body.ints(3))


def row(body: GraphBuilder, vector: str) -> str:
    return body.op("Unsqueeze", vector, body.ints(2))


def decay(body: GraphBuilder, state: str, factor: Any = 0.9) -> str:
    return body.op("Mul", state, body.constant(numpy.float32(factor)))


def values_first(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    """As in Mamba-2: ``[batch, heads, values, keys]``."""
    key, value, query = token
    state = body.op("Add", body.op("MatMul", column(body, value), row(body, key)), decay(body, state))
    read = body.op("Squeeze", body.op("MatMul", state, column(body, query)), body.ints(3))
    return state, read


def einsums(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    key, value, query = token
    held = body.op("Einsum", key, state, equation="bhk,bhkv->bhv")
    delta = body.op("Mul", body.op("Sub", value, held), body.constant(numpy.float32([[[0.3], [0.2], [0.1]]])))
    state = body.op("Add", state, body.op("Einsum", key, delta, equation="bhk,bhv->bhkv"))
    return state, body.op("Einsum", query, state, equation="bhk,bhkv->bhv")


def scaled(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    key, value, query = token
    value = body.op("Mul", value, body.constant(numpy.float32(0.7)))
    state = body.op("Add", state, body.op("Mul", column(body, key), row(body, value)))
    return state, body.op("ReduceSum", body.op("Mul", state, column(body, query)), body.ints(2), keepdims=0)


@pytest.mark.parametrize("loop", ["Scan", "Loop"])
@pytest.mark.parametrize("work", [values_first, einsums, scaled])
def test_each_form_of_the_update_is_fused(work, loop):
    model = step(work, loop)
    after, result = fused(model)
    assert result.statistics == {"layers fused": 1, "layers left": 0}, result.notes
    assert "LinearAttention" in kinds(after)
    assert compare(model, after, steps=4).passed
    again, result = fused(after)
    assert result.statistics == {}
    assert again.digest() == after.digest()


@pytest.mark.parametrize("loop", ["Scan", "Loop"])
def test_a_constant_decay(loop):
    after, _ = fused(recurrent(loop))
    assert "LinearAttention" in kinds(after)
    assert compare(recurrent(loop), after, steps=4).passed


def reads_old_state(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    key, value, query = token
    new = body.op("Add", decay(body, state), body.op("Mul", column(body, key), row(body, value)))
    return new, body.op("ReduceSum", body.op("Mul", state, column(body, query)), body.ints(2), keepdims=0)


def decays_below_zero(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    key, value, query = token
    new = body.op("Add", decay(body, state, -0.5), body.op("Mul", column(body, key), row(body, value)))
    return new, body.op("ReduceSum", body.op("Mul", new, column(body, query)), body.ints(2), keepdims=0)


def corrects_by_the_query(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    key, value, query = token
    held = body.op("ReduceSum", body.op("Mul", state, column(body, query)), body.ints(2), keepdims=0)
    added = body.op("Mul", column(body, key), row(body, body.op("Sub", value, held)))
    new = body.op("Add", state, added)
    return new, body.op("ReduceSum", body.op("Mul", new, column(body, query)), body.ints(2), keepdims=0)


def corrects_by_a_part(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    key, value, query = token
    held = body.op("Relu", body.op("ReduceSum", body.op("Mul", state, column(body, key)), body.ints(2), keepdims=0))
    new = body.op("Add", state, body.op("Mul", column(body, key), row(body, body.op("Sub", value, held))))
    return new, body.op("ReduceSum", body.op("Mul", new, column(body, query)), body.ints(2), keepdims=0)


def takes_the_root(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    key, value, query = token
    added = body.op("Mul", column(body, body.op("Sqrt", body.op("Abs", key))), row(body, value))
    new = body.op("Add", state, added)
    return new, body.op("ReduceSum", body.op("Mul", new, column(body, query)), body.ints(2), keepdims=0)


def multiplies_states(body: GraphBuilder, state: str, token: list[str]) -> tuple[str, str]:
    _, _, query = token
    new = body.op("Mul", state, body.op("Tanh", state))
    return new, body.op("ReduceSum", body.op("Mul", new, column(body, query)), body.ints(2), keepdims=0)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (reads_old_state, "the result of a token is not a product with the new state"),
        (decays_below_zero, "may be negative"),
        (corrects_by_the_query, "the results of the loop differ from linear attention"),
        (corrects_by_a_part, "the correction is not a product with the old state"),
        (takes_the_root, "Sqrt computes a factor of the update in the loop"),
        (multiplies_states, "Multiply computes the new state, expected Add"),
    ],
)
def test_other_loops_stay_with_the_reason(work, reason):
    model = step(work)
    after, result = fused(model)
    assert after.digest() == model.digest()
    (note,) = result.notes
    assert reason in note


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scan_input_directions": [1, 1, 1]}, "the loop does not process the tokens in order"),
        ({"scan_output_directions": [1]}, "the loop does not process the tokens in order"),
    ],
)
def test_a_loop_from_the_last_token_to_the_first_stays(change, reason):
    import onnx

    model = recurrent("Scan")
    scan = next(node for node in model.proto.graph.node if node.op_type == "Scan")
    scan.attribute.extend(onnx.helper.make_attribute(name, given) for name, given in change.items())
    assert reason in fused(OnnxModel(model.proto))[1].notes[0]


def test_a_loop_with_an_early_end_stays():
    model = recurrent("Loop")
    loop = next(node for node in model.proto.graph.node if node.op_type == "Loop")
    body = next(given.g for given in loop.attribute if given.name == "body")
    go_on = next(node for node in body.node if node.output[0] == body.output[0].name)
    go_on.op_type = "Not"
    assert "the loop may end before its last iteration" in fused(OnnxModel(model.proto))[1].notes[0]


#: Qwen3-Next's layers with the loop of PyTorch's TorchScript exporter, which writes results into a buffer.
HYBRID = "qwen3_next_dense"


@functools.cache
def hybrid() -> OnnxModel:
    model = graphpass.load(hybrids() / HYBRID / "onnx-raw")
    assert isinstance(model, OnnxModel)
    return model


@functools.cache
def fused_hybrid() -> OnnxModel:
    return fused(hybrid(), "fuse-linear-attention,fuse-causal-conv")[0]


def generated(model: OnnxModel) -> bool:
    """Return whether ``model`` generates PyTorch's tokens after the prompt in two chunks."""
    wanted = json.loads((hybrids() / HYBRID / "reference.json").read_text())
    opened, prompt = graphpass.runtime.open_session(model), wanted["prompt_ids"]
    opened.prefill(prompt[:2])
    logits = opened.step([prompt[2:]])
    return greedy_tokens(opened, logits, len(wanted["greedy_ids"])) == wanted["greedy_ids"]


def test_an_exported_hybrid_on_onnx_runtime():
    after = fused_hybrid()
    found = kinds(after)
    assert (found.count("LinearAttention"), found.count("CausalConvWithState")) == (3, 3)
    assert not {"Conv", "Loop"} & set(found)
    assert compare(hybrid(), after, steps=4).passed
    assert generated(after)


def test_the_inventory_is_unchanged():
    after, _ = fused(hybrid(), "fuse-linear-attention,fuse-causal-conv")
    before, now = (
        [
            (one.kind, one.role, one.read, one.write, one.axes, one.shape)
            for one in graphpass.analyze_caches(model).caches
        ]
        for model in (hybrid(), after)
    )
    assert before == now


@pytest.mark.parametrize(("family", "share"), [("kimi_linear", 0.4), ("qwen3_5_text", 0.25), ("nemotron_h", 0.8)])
def test_a_chunk_of_tokens_becomes_one_operator(family, share):
    """As transformers exports them, for up to 64 and 8 tokens at once: afterwards any number is right."""
    source = graphpass.load(exporters("transformers-onnx", family))
    assert isinstance(source, OnnxModel)
    model, result = fused(source)
    assert result.statistics == {"layers fused": 1, "layers left": 0}
    assert kinds(model).count("LinearAttention") == 1
    assert not {"CumSum", "Trilu"} & set(kinds(model))
    assert len(kinds(model)) < share * len(kinds(source))
    assert compare(source, model, steps=4).passed
    opened, ids = graphpass.runtime.open_session(model), numpy.arange(3, 103)[None] % VOCABULARY
    whole = opened.prefill(ids.tolist())
    one, parts = graphpass.runtime.open_session(source), []
    for part in numpy.split(ids, 20, axis=1):
        parts.append(one.step(part.tolist()) if parts else one.prefill(part.tolist()))
    numpy.testing.assert_allclose(whole, numpy.concatenate(parts, axis=1), atol=1e-3)


@pytest.mark.slow
def test_names_do_not_matter():
    rename = Renaming(5)
    model = renamed(hybrid(), rename)
    assert isinstance(model, OnnxModel)
    after, result = fused(model)
    assert result.statistics == {"layers fused": 3, "layers left": 0}
    found = kinds(fused(after, "fuse-causal-conv")[0])
    assert (found.count("LinearAttention"), found.count("CausalConvWithState")) == (3, 3)
