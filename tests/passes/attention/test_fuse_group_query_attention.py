"""The pass `fuse-group-query-attention`: what it fuses, what it leaves and why, and the numbers."""

from __future__ import annotations

import numpy
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import numpy_helper
from support.cache_graphs import Renaming, renamed
from support.loaded import exported, onnx_model, run_once
from support.operators import count_operators
from support.reference_tokens import generates_reference_tokens

import graphpass
from graphpass.analysis.attention.find import find_attention
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UsageError
from graphpass.ir.operators import LAYOUT
from graphpass.runtime import open_session
from graphpass.verify import compare

#: Decoders as optimum exports them, with the positions that they were made for.
DECODERS = {
    **dict.fromkeys(("gpt2", "llama", "llama_12l", "opt", "qwen3"), 512),
    **dict.fromkeys(("bloom", "falcon", "falcon_alibi", "gemma2", "gemma3_text", "gpt_neo", "gpt_oss", "gptj"), 128),
    **dict.fromkeys(("gpt2_upcast", "mistral_sw8", "phi3", "qwen3_moe"), 128),
}

#: ALiBi is added as a bias; the others' masks become attributes.
BIASED = {"bloom", "falcon_alibi"}

#: These count places in the cache, padding included, where the others are fed positions.
COUNT_PLACES = {"falcon_alibi", "gemma2", "gemma3_text", "gpt_oss"}

QUICK = {("gpt_oss", "any"), ("llama", "right")}


def fused(name: str, padding: str, variant: str = "onnx"):
    options = f"padding={padding},context={DECODERS[name]}"
    return run_once(exported(f"{name}/{variant}"), f"fuse-group-query-attention{{{options}}}")


def cases():
    for name in DECODERS:
        for padding in ("any", "right"):
            marks = () if (name, padding) in QUICK else (pytest.mark.slow,)
            yield pytest.param(name, padding, marks=marks, id=f"{name}-{padding}")


@pytest.mark.parametrize(("name", "padding"), list(cases()))
def test_decoders_compute_the_same(name, padding):
    result = fused(name, padding)
    done = result.records[-1].result
    layers = sum(1 for block in graphpass.analyze_caches(exported(f"{name}/onnx")).attention)
    assert done.statistics == {"attention fused": layers, "attention left": 0}
    assert any("reads its mask as a bias" in note for note in done.notes) == (name in BIASED)
    found = count_operators(result.model)
    assert (found["GroupQueryAttention"], found["Softmax"]) == (
        layers,
        count_operators(onnx_model(name))["Softmax"] - layers,
    )
    assert generates_reference_tokens(result.model, name)
    # ALiBi counts padding out by itself, so that both forms read it in front.
    side = "left" if padding == "any" or name in BIASED else "right"
    assert compare(exported(f"{name}/onnx"), result.model, steps=4, edits=True, padding=side).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DECODERS.keys() - COUNT_PLACES - {"mistral_sw8", "gpt_neo"}))
def test_padding_on_the_right_is_read_rightly_with_any(name):
    assert compare(exported(f"{name}/onnx"), fused(name, "any").model, steps=4, padding="right").passed


@pytest.mark.slow
def test_padding_in_front_is_found_misread_with_right():
    assert not compare(exported("llama/onnx"), fused("llama", "right").model, steps=1).passed


def test_unfused_attention_has_a_reason():
    result = run_once(exported("deepseek_v3/onnx"), "fuse-group-query-attention{context=64}")
    assert not result.records[-1].result.changed
    reason = "GroupQueryAttention requires keys and values of one size, not 24 and 16"
    assert all(reason in note for note in result.records[-1].result.notes)
    assert len(result.records[-1].result.notes) == 2


@pytest.mark.parametrize("padding", ["any", pytest.param("right", marks=pytest.mark.slow)])
def test_smaller_values_are_padded_on_demand(padding):
    model = exported("deepseek_v3/onnx")
    result = run_once(model, f"fuse-group-query-attention{{padding={padding},context=128,pad-values=true}}").model
    assert count_operators(result)["GroupQueryAttention"] == 2
    assert {cache.shape[3] for cache in graphpass.analyze_caches(result).caches} == {24}
    assert generates_reference_tokens(result, "deepseek_v3")
    side = "left" if padding == "any" else "right"
    assert compare(model, result, steps=4, edits=True, padding=side).passed


def test_without_a_cache_nothing_is_fused():
    result = run_once(exported("llama/onnx-nocache"), "fuse-group-query-attention")
    assert "is not a past with new entries appended" in result.records[-1].result.notes[0]


def test_a_second_run_changes_nothing():
    again = run_once(fused("llama", "any").model, "fuse-group-query-attention{context=512}")
    assert not again.records[-1].result.changed


def test_f16_stays_f16():
    result = fused("llama", "any", "onnx-fp16")
    assert compare(exported("llama/onnx-fp16"), result.model, steps=4).passed
    (kind,) = {tensor.type.tensor_type.elem_type for tensor in result.model.proto.graph.output[1:]}
    assert kind == onnx.TensorProto.FLOAT16


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt_oss", "falcon"])
def test_names_do_not_matter(name):
    kept = {"input_ids", "attention_mask", "position_ids", "logits"}
    rename = Renaming(seed=4)
    model = renamed(onnx_model(name), lambda word: word if word in kept else rename(word))
    result = run_once(model, "fuse-group-query-attention{context=128}").model
    assert count_operators(result) == count_operators(fused(name, "any").model)
    assert compare(model, result, steps=4).passed


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["any", "right"])
def test_normalized_heads_are_transposed_once(padding):
    """gemma3 norms heads after they changed places with positions; GroupQueryAttention wants them as they were."""
    source = exported("gemma3_text/onnx")
    result = run_once(source, f"fuse-functions,fuse-group-query-attention{{padding={padding},context=128}}").model
    assert not any(result.graph.of_op("Transpose"))
    side = "left" if padding == "any" else "right"
    assert compare(source, result, steps=4, padding=side).passed


@pytest.mark.parametrize("padding", ["any", "right"])
def test_past_and_present_may_share_a_larger_buffer(padding):
    model = fused("llama", padding).model
    graph = model.graph
    for cache in graphpass.analyze_caches(model).caches:
        users = graph.uses(graph.reads[cache.read].outputs[0])
        assert {use.node.op for use in users} == {"GroupQueryAttention"}


def test_several_tokens_after_a_past_are_fed_one_by_one_in_batches():
    sessions = open_session(exported("llama/onnx")), open_session(fused("llama", "any").model)
    ids = numpy.array([[5, 9, 17, 3], [8, 2, 40, 7]])
    for session in sessions:
        session.prefill(ids[:, :2])
    one, other = (session.step(ids) for session in sessions)
    assert numpy.allclose(one, other, atol=1e-5)


def test_a_mask_with_visible_later_positions_becomes_a_bias():
    model = onnx_model("llama")
    with model.graphsurgeon() as graph:
        (causal,) = [node for node in graph.nodes if node.op == "LessOrEqual"]
        least = gs.Variable("least", onnx.TensorProto.INT64)
        inputs = [causal.inputs[0], gs.Constant("place", numpy.array(20))]
        graph.nodes.append(gs.Node("Min", inputs=inputs, outputs=[least]))
        causal.inputs[0] = least
        graph.toposort()
    result = run_once(model, "fuse-group-query-attention{context=128}")
    assert "hides other positions, unless" in result.records[-1].result.notes[0]
    assert compare(model, result.model, prompt_ids=tuple(range(3, 40)), steps=2).passed


def test_a_mask_depending_on_keys_stays():
    """The operator makes the keys: with that mask as its bias, the graph would be a cycle."""
    model = onnx_model("llama")
    (first, _) = model.analysis(find_attention)
    whole = model.graph.look_through(first.key, LAYOUT)
    with model.graphsurgeon() as graph:
        tensors = graph.tensors()
        softmax = next(node for node in graph.nodes if node.name == first.node.name)
        (added,) = [node for node in softmax.inputs[0].inputs if node.op == "Add"]
        least, nothing, mask = (gs.Variable(name, numpy.float32) for name in ("least", "nothing", "mask"))
        graph.nodes.append(gs.Node("ReduceMin", inputs=[tensors[whole.name]], outputs=[least]))
        little = gs.Constant("little", numpy.float32([1e-6]))
        graph.nodes.append(gs.Node("Mul", inputs=[least, little], outputs=[nothing]))
        graph.nodes.append(gs.Node("Add", inputs=[added.inputs[1], nothing], outputs=[mask]))
        added.inputs[1] = mask
        graph.toposort()
    result = run_once(model, "fuse-group-query-attention{context=128}")
    assert result.records[-1].result.statistics == {"attention fused": 1, "attention left": 1}
    assert "its mask reads the keys" in result.records[-1].result.notes[0]
    assert compare(model, result.model, steps=2).passed


def test_a_factor_of_cached_keys_is_not_a_scale():
    """As Falcon-H1 has: the operator reads what the decomposed attention has before rotation and cache."""
    model = onnx_model("llama")
    with model.graphsurgeon() as graph:
        for node in [node for node in graph.nodes if "k_proj" in node.name and node.op == "MatMul"]:
            key, scaled = node.outputs[0], gs.Variable(f"{node.name}_plain", numpy.float32)
            node.outputs[0] = scaled
            factor = gs.Constant(f"{node.name}_factor", numpy.array(0.8, numpy.float32))
            graph.nodes.append(gs.Node("Mul", inputs=[scaled, factor], outputs=[key]))
        graph.toposort()
    result = run_once(model, "fuse-group-query-attention{padding=right,context=128}")
    assert result.records[-1].result.statistics["attention fused"] == 2
    assert compare(model, result.model, steps=2, padding="right").passed


def scaled_by_a_size(axis: int) -> OnnxModel:
    """Return llama whose first query is scaled by a root of one of its own sizes, which shape inference misses."""
    model = onnx_model("llama")
    graph = model.proto.graph
    (scale, *_) = next(iter(model.analysis(find_attention))).scales
    (use,) = model.graph.uses(scale.value)
    scaled = next(node for node in graph.node if node.output[0] == use.node.outputs[0].name)
    sizes = {"axis": [axis], "zero": [0], "three": [3], "one": 1.0}
    graph.initializer.extend(
        numpy_helper.from_array(numpy.array(held, numpy.float32 if name == "one" else numpy.int64), name)
        for name, held in sizes.items()
    )
    steps = [
        ("Shape", [scaled.input[0]], {}),
        ("Gather", ["computed_0", "three"], {}),
        ("Slice", [scaled.input[0], "zero", "computed_1", "three"], {}),
        ("Shape", ["computed_2"], {}),
        ("Gather", ["computed_3", "axis"], {}),
        ("Cast", ["computed_4"], {"to": onnx.TensorProto.FLOAT}),
        ("Sqrt", ["computed_5"], {}),
        ("Sqrt", ["computed_6"], {}),
        ("Div", ["one", "computed_7"], {}),
    ]
    place = list(graph.node).index(scaled)
    for number, (kind, inputs, attributes) in enumerate(steps):
        made = onnx.helper.make_node(kind, inputs, [f"computed_{number}"], f"computed_{number}", **attributes)
        graph.node.insert(place + number, made)
    scaled.input[1] = f"computed_{len(steps) - 1}"
    model.mark_edited()
    return model


def test_a_scale_may_be_computed_from_the_size_of_a_head():
    model = scaled_by_a_size(3)
    result = run_once(model, "fuse-group-query-attention{context=512}")
    assert result.records[-1].result.statistics["attention fused"] == 2
    assert compare(exported("llama/onnx"), result.model, steps=3).passed


def test_external_positions_count_tokens_with_right_padding(monkeypatch):
    """Stand in for nemotron: no kernel takes its rotation of a quarter, and its graph counts places."""
    monkeypatch.setattr("graphpass.analysis.equations.grouped_query.ROTATED_HEADS_OF", 32)
    result = run_once(onnx_model("gemma2"), "fuse-group-query-attention{padding=right,context=128}").model
    assert count_operators(result)["RotaryEmbedding"] == 8
    assert compare(exported("gemma2/onnx"), result, steps=4, padding="right").passed


def test_a_scale_depending_on_a_length_stays():
    result = run_once(scaled_by_a_size(2), "fuse-group-query-attention{context=512}").records[-1].result
    assert result.statistics["attention fused"] == 1
    assert "its scale computed_8 is computed" in result.notes[0]


def test_an_empty_context_is_refused():
    with pytest.raises(UsageError, match="GP266"):
        run_once(exported("llama/onnx"), "fuse-group-query-attention{context=0}")


def test_rotary_tables_beyond_the_model_are_unchanged():
    result = run_once(exported("gptj/onnx"), "fuse-group-query-attention{context=129}")
    assert any("rotary embedding stays unchanged" in note for note in result.records[-1].result.notes)
    assert count_operators(result.model)["RotaryEmbedding"] == 0
