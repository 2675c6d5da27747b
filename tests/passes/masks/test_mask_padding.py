"""mask-padding: linear caches are as if padding had not been fed, wherever it stands, and all else is as it was."""

from __future__ import annotations

import functools

import numpy
import openvino
import pytest
from hypothesis import given, settings, strategies as some
from onnx import TensorProto, helper
from support.attention_graphs import infer
from support.decode import Decoder, compiled, greedy
from support.loaded import onnx_model, openvino_model
from support.models import exporters, reference
from support.pipelines import run_passes

import graphpass
from graphpass.analysis.caches.step_tokens import absorbs_padding
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.passes.attention.expose_position_ids import ExposePositionIds
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.lower.lower_operators import LowerOperators
from graphpass.passes.masks.mask_padding import MaskPadding
from graphpass.runtime import open_session

HYBRIDS = ["lfm2", "qwen3_next", "granitemoehybrid"]


def run(model: graphpass.Model, *others: graphpass.Pass) -> tuple[OpenVINOModel, object]:
    return run_passes(model, *others, MaskPadding())


@functools.cache
def masked(name: str, variant: str = "ov-stateless") -> OpenVINOModel:
    if variant == "onnx-genai":
        model = onnx_model(name, variant)
        return run(model, *graphpass.get_target("cpu").pipeline(model))[0]
    return run(openvino_model(name, variant))[0]


@functools.cache
def on_the_cpu_plugin(name: str, variant: str = "ov-stateless") -> openvino.CompiledModel:
    more = [] if variant == "onnx-genai" else [ExposePositionIds()]
    more += [MakeStateful()] if variant == "ov-stateless" else []
    return compiled(PassManager(more).run(masked(name, variant)).model.ov_model)


CASES = [*((name, "ov-stateless") for name in HYBRIDS), ("lfm2", "ov-stateful"), ("lfm2", "onnx-genai")]


@pytest.mark.parametrize(("name", "variant"), CASES)
class TestModels:
    def test_decodes_the_reference_tokens(self, name, variant):
        expected = reference(name)
        request = on_the_cpu_plugin(name, variant).create_infer_request()
        assert greedy(request, [expected["prompt_ids"]] * 2, 12) == [expected["greedy_ids"]] * 2

    def test_decodes_the_reference_tokens_after_padding(self, name, variant):
        expected = reference(name)
        request = on_the_cpu_plugin(name, variant).create_infer_request()
        prompts = [expected["prompt_ids"], [17, 4, 8, 25, 9, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]

    def test_a_second_run_changes_nothing(self, name, variant):
        _, result = run(masked(name, variant))
        assert not result.changed

    def test_no_cache_absorbs_padding(self, name, variant):
        model = masked(name, variant)
        caches = graphpass.analyze_caches(model).of_kind("linear")
        assert caches
        assert not any(absorbs_padding(model, cache) for cache in caches)


#: Lengths of the chunks that a prompt is fed in, and how much padding stands in front of each.
CHUNKS = some.lists(some.tuples(some.integers(1, 4), some.integers(0, 5)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", HYBRIDS)
def test_padding_between_chunks_changes_nothing(name):
    """As NPUW feeds a prompt: each chunk filled up on the left to one size."""
    model = on_the_cpu_plugin(name)

    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(CHUNKS)
    def check(chunks):
        plain, padded = (Decoder(model.create_infer_request()) for _ in range(2))
        random = numpy.random.default_rng(len(chunks))
        for length, padding in chunks:
            ids = random.integers(3, 300, [1, length])
            expected = plain.step(ids)
            real = numpy.repeat([[0, 1]], [padding, length], axis=1)
            found = padded.step(numpy.pad(ids, [(0, 0), (padding, 0)]), real)
            numpy.testing.assert_allclose(found, expected, atol=1e-4)

    check()


def test_statistics_count_changes():
    _, result = run(openvino_model("qwen3_next", "ov-stateless"))
    assert result.changed
    assert result.statistics == {"windows masked": 3, "states masked": 3}


def test_layers_share_one_mask():
    kinds = [op.get_type_name() for op in masked("qwen3_next").ov_model.get_ops()]
    before = [op.get_type_name() for op in openvino_model("qwen3_next", "ov-stateless").ov_model.get_ops()]
    assert kinds.count("Range") - before.count("Range") == 1


def test_a_saved_result_is_readable(tmp_path):
    graphpass.save(masked("qwen3_next"), tmp_path / "model.xml")
    assert graphpass.load(tmp_path / "model.xml").digest() == masked("qwen3_next").digest()


def test_states_outside_loops_are_noted():
    model = openvino_model("mamba", "ov-stateless")
    after, result = run(model)
    assert not result.changed
    assert any("cache_params.past.conv.0: its users are Roll" in note for note in result.notes)
    assert after.digest() == model.digest()


def test_norms_of_padding_do_not_divide_zeros():
    """Attention would pass the NaN on to the tokens."""
    model, _ = run(graphpass.load(exporters("mobius", "qwen3_5_text")), LowerOperators(), ToOpenVINO())
    session = open_session(model)
    ids = numpy.random.default_rng(0).integers(3, 200, (2, 11))
    mask = numpy.ones_like(ids)
    mask[1, :9] = 0
    padded = session.forward(ids, mask)["logits"][1, 9:].copy()
    session.reset()
    alone = session.forward(ids[1:, 9:], mask[1:, 9:])["logits"][0]
    numpy.testing.assert_allclose(padded, alone, atol=1e-4)


def test_models_without_linear_caches_are_unchanged():
    assert not run(openvino_model("llama"))[1].changed


@pytest.mark.parametrize("rule", ["gated", "gated_delta"])
def test_states_carried_by_a_scan(rule):
    """LinearAttention of ONNX, which becomes a TensorIterator."""
    model, _ = run(linear_attention(rule), LowerOperators(), ToOpenVINO())
    for name in ("input_ids", "attention_mask"):
        model.rewriter().input(name, "i64", [None, None])
    model.mark_edited()
    after, result = run(model)
    assert result.changed
    assert result.statistics == {"states masked": 1}
    random = numpy.random.default_rng(2)
    given = {
        port.name: random.standard_normal([2, *[3 if size is None else size for size in port.shape[1:]]]).astype("f4")
        for port in after.inputs
        if port.name not in {"input_ids", "attention_mask"}
    }
    ids = numpy.zeros([2, 3], numpy.int64)
    expected = infer(after.ov_model, given | {"input_ids": ids, "attention_mask": numpy.ones([2, 3], numpy.int64)})
    padded = {
        name: value
        if name == "past"
        else numpy.concatenate([random.standard_normal((2, 2, *value.shape[2:])), value], 1)
        for name, value in given.items()
    }
    mask = numpy.array([[0, 0, 1, 1, 1]] * 2)
    padded = {name: value.astype("f4") for name, value in padded.items()}
    found = infer(after.ov_model, padded | {"input_ids": numpy.zeros([2, 5], numpy.int64), "attention_mask": mask})
    numpy.testing.assert_allclose(found["present"], expected["present"], rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(found["attended"][:, 2:], expected["attended"], rtol=1e-4, atol=1e-4)


def linear_attention(rule: str) -> OnnxModel:
    heads, size = 2, 4
    shapes = {
        **{name: ["batch", "length", heads * size] for name in ("query", "key", "value")},
        "past": ["batch", heads, size, size],
        "decay": ["batch", "length", heads],
        **({"beta": ["batch", "length", heads]} if "delta" in rule else {}),
    }
    node = helper.make_node(
        "LinearAttention", list(shapes), ["attended", "present"], "layer",
        domain="com.microsoft", update_rule=rule, q_num_heads=heads, kv_num_heads=heads,
    )  # fmt: skip
    results = {"attended": shapes["query"], "present": shapes["past"]}
    ports = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in group.items()]
        for group in (shapes, results)
    )
    graph = helper.make_graph([node], "linear_attention", *ports)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def test_without_a_mask_nothing_is_known_of_padding():
    model = openvino_model("lfm2", "ov-stateless").clone()
    for port in model.ov_model.inputs:
        if "attention_mask" in port.get_names():
            port.get_node().set_friendly_name("something")
            port.set_names({"something"})
    model.mark_edited()
    assert isinstance(run(model)[1], Skipped)
