"""What each attention is like: over all exports, under other names, in forms that no export has."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy
import pytest
from analysis.attention.plain_attention import F32, PlainAttention, number
from openvino import opset13 as ops
from support import layout_forms
from support.cache_graphs import Renaming, TinyDecoder, renamed, shuffled
from support.layout_forms import WINDOW
from support.loaded import converted, exported
from support.models import fixtures
from support.quick_cases import model_files, quick_files

import graphpass
from graphpass.analysis.attention.attributes import attention_details
from graphpass.analysis.caches.step_lengths import step_elements
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.cache import AttentionBlock
from graphpass.reports.attention import attention_in_words

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "attention.json").read_text())


def row(block: AttentionBlock) -> list[object]:
    values = [getattr(block, name) for name in GOLDEN["columns"][1:]]
    return [list(value) if isinstance(value, tuple) else value for value in values]


def blocks(path: str) -> tuple[AttentionBlock, ...]:
    return graphpass.analyze_caches(exported(path)).attention


def rows(found: tuple[AttentionBlock, ...]) -> list[list[object]]:
    """Blocks that are alike in one row, in order of the first of them."""
    groups: dict[str, list[object]] = {}
    for block in found:
        groups.setdefault(json.dumps(row(block)), [[], *row(block)])[0].append(block.layer)
    return list(groups.values())


def test_the_table_has_every_model():
    assert sorted(GOLDEN["models"]) == model_files()


@pytest.mark.parametrize("path", GOLDEN["models"])
def test_every_attention_has_its_attributes(path):
    assert rows(blocks(path)) == GOLDEN["models"][path]


@pytest.mark.slow
def test_numbers_of_missing_attributes_are_as_recorded():
    untold: dict[str, int] = {}
    for path in GOLDEN["models"]:
        for block in blocks(path):
            for name in ("heads", "key_heads", "head_dim", "value_head_dim", "scale", "mask", "sinks"):
                if getattr(block, name) is None:
                    untold[name] = untold.get(name, 0) + 1
    assert untold == GOLDEN["untold"]


CONFIGURED = [path for path in GOLDEN["models"] if (fixtures() / path).with_name("config.json").exists()]


def named(config, *names, default=None):
    return next((config[name] for name in names if config.get(name) is not None), default)


def configured(config, layer):
    """What transformers does in attention layer ``layer`` of ``config``, as its modelling code reads it."""
    kind = config["model_type"]
    heads = named(config, "decoder_attention_heads", "num_attention_heads", "n_head", "num_heads", "attention_heads")
    width = named(config, "hidden_size", "n_embd", "d_model")
    size = value = named(config, "d_kv", "attention_head_dim", "head_dim", default=width // heads)
    key_heads = named(config, "num_key_value_heads", default=heads)
    if kind == "falcon":
        key_heads = 1 if config["multi_query"] else heads
    if kind == "deepseek_v3":
        size, value = config["qk_nope_head_dim"] + config["qk_rope_head_dim"], config["v_head_dim"]
    scale = named(config, "query_pre_attn_scalar", default=size) ** -0.5
    scale = named(config, "attention_multiplier", default=scale)
    scale = 1.0 if kind in {"t5", "gpt_neo"} else scale
    # Its attention reads hidden states and embeddings side by side, twice the width.
    scale = (size / 2) ** -0.5 if kind == "zamba2" else scale
    if config.get("scale_attn_by_inverse_layer_idx"):
        scale /= layer + 1
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if config.get("layer_types") and config["layer_types"][layer] != "sliding_attention":
        window = None
    if kind == "gpt_neo":
        window = config["window_size"] if config["attention_layers"][layer] == "local" else None
    return heads, key_heads, size, value, scale, config.get("attn_logit_softcapping"), kind == "gpt_oss", window


@pytest.mark.parametrize("path", CONFIGURED)
def test_attributes_equal_the_configuration(path):
    config = json.loads((fixtures() / path).with_name("config.json").read_text())
    for number_, block in enumerate(blocks(path)):
        layer = block.layer if block.layer is not None else number_
        heads, key_heads, size, value, scale, *rest = configured(config, layer)
        assert block.key_heads in {key_heads, None}
        assert (block.heads, block.head_dim, block.value_head_dim) == (heads, size, value)
        assert block.scale == pytest.approx(scale, rel=1e-4)
        assert [block.softcap, block.sinks, block.window] == rest
        assert block.window_in == ("mask" if block.window else None)


@pytest.mark.parametrize("path", quick_files(path for path, found in GOLDEN["models"].items() if found))
def test_names_and_order_of_nodes_do_not_matter(path):
    changed = shuffled(renamed(exported(path), Renaming(seed=len(path))), seed=3)
    found = graphpass.analyze_caches(changed).attention
    assert sorted(map(repr, rows(found))) == sorted(map(repr, GOLDEN["models"][path]))


@pytest.mark.parametrize("model", ["bloom", "falcon", "gemma3_text", "gpt_neo", "gpt_oss", "llama", "phi3", "opt"])
def test_a_converted_model_is_like_its_source(model):
    path = f"{model}/onnx/model.onnx"
    after = graphpass.analyze_caches(converted(exported(path)).model).attention
    assert {block.form for block in after} == {"ScaledDotProductAttention"}
    for new, old in zip(after, blocks(path), strict=True):
        kept = {name: getattr(old, name) for name in ("node", "form", "key", "value", "factors")}
        assert dataclasses.replace(new, **kept) == old


class TestWindowsOfCaches:
    def test_a_window_in_the_mask_is_reported(self):
        inventory = graphpass.analyze_caches(exported("gemma3_text/ov-stateful"))
        line = "a window of 8 in the mask only; the cache keeps all positions"
        assert [cache.layer for cache in inventory.caches if line in cache.evidence] == [0, 0, 1, 1, 2, 2]

    def test_a_window_in_the_state_is_reported(self):
        inventory = graphpass.analyze_caches(layout_forms.window("after"))
        (block,) = inventory.attention
        assert (block.window, block.window_in) == (WINDOW, "state")
        assert not any("mask only" in fact for cache in inventory.caches for fact in cache.evidence)

    def test_a_window_of_unknown_size_in_the_state(self):
        (block,) = graphpass.analyze_caches(layout_forms.window("before")).attention
        assert (block.window, block.window_in) == (None, "state")
        assert attention_in_words(block).endswith("window in the state")


def details(block: PlainAttention) -> AttentionBlock:
    """Of what ``block`` builds."""
    import openvino

    last = block.result(block.after(block.weights(block.scores(block.product()))))
    inputs = [block.query, block.key, block.value, block.mask]
    model = OpenVINOModel(openvino.Model([ops.result(last)], inputs))
    (found,) = attention_details(model, step_elements(model, ()))
    return found


class Scored(PlainAttention):
    """Scores as ``build`` makes them of their product."""

    def __init__(self, build):
        super().__init__()
        self.build = build

    def scores(self, product):
        return self.build(self, product)


def largest(value):
    return ops.reduce_max(value, ops.constant([0, 1, 2, 3]), True)


def capped(before, behind):
    return lambda block, product: ops.add(
        ops.multiply(ops.tanh(ops.multiply(product, number(before))), number(behind)), block.mask
    )


@pytest.mark.parametrize(
    ("build", "scale", "factors", "softcap"),
    [
        (lambda block, product: ops.add(product, block.mask), 1.0, (), None),
        (lambda block, product: ops.divide(ops.multiply(product, number(0.5)), number(4.0)), 0.125, (0.5, 0.25), None),
        (lambda block, product: ops.multiply(product, ops.sqrt(number(0.25))), 0.5, (), None),
        (capped(1 / 50, 50.0), 1.0, (), 50.0),
        (capped(0.25 / 30, 30.0), 0.25, (), 30.0),
        (capped(0.5, 1.0), 0.5, (), 1.0),
        (lambda block, product: ops.multiply(product, largest(block.mask)), None, (), None),
    ],
    ids=["none", "two", "computed from constants", "cap", "cap and scale in one", "cap of one", "given"],
)
def test_scales_and_soft_caps_are_found(build, scale, factors, softcap):
    found = details(Scored(build))
    assert (found.scale, found.factors, found.softcap) == (scale, factors, softcap)


def test_a_scale_before_heads_are_split_and_before_a_bias():
    import openvino

    hidden, mask = ops.parameter([-1, -1, 32], numpy.float32), ops.parameter([-1, 1, -1, -1], numpy.float32)
    weights = ops.constant(numpy.ones([32, 32]), dtype=F32)

    def heads(value):
        return ops.transpose(ops.reshape(value, ops.constant([0, 0, 4, 8]), True), ops.constant([0, 2, 1, 3]))

    projected = ops.multiply(ops.matmul(hidden, weights, False, False), number(0.3))
    query = heads(ops.add(projected, ops.constant(numpy.ones([1, 1, 32]), dtype=F32)))
    keys, values = (heads(ops.matmul(hidden, weights, False, False)) for _ in range(2))
    attended = ops.scaled_dot_product_attention(query, keys, values, mask, number(0.5))
    model = OpenVINOModel(openvino.Model([ops.result(attended)], [hidden, mask]))
    (found,) = attention_details(model, step_elements(model, ()))
    assert (found.scale, found.factors) == (0.15, (0.3, 0.5))
    assert found.mask == ("input",)


@pytest.mark.parametrize("zero_point", [None, 128.0])
def test_the_scale_of_keys_in_integers_is_no_factor_of_scores(zero_point):
    import openvino

    query, mask = ops.parameter([-1, 4, -1, 8], numpy.float32), ops.parameter([-1, 1, -1, -1], numpy.float32)
    stored = [ops.parameter([-1, 4, -1, 8], numpy.uint8) for _ in range(2)]
    keys, values = (ops.convert(value, "f32") for value in stored)
    if zero_point is not None:
        keys, values = (ops.subtract(value, number(zero_point)) for value in (keys, values))
    keys, values = (ops.multiply(value, number(0.02)) for value in (keys, values))
    attended = ops.scaled_dot_product_attention(query, keys, values, mask, number(0.5))
    model = OpenVINOModel(openvino.Model([ops.result(attended)], [query, mask, *stored]))
    (found,) = attention_details(model, step_elements(model, ()))
    assert (found.scale, found.factors) == (0.5, ())


def positions(count, axis):
    return ops.unsqueeze(ops.range(ops.constant(0), ops.constant(count), ops.constant(1), "i64"), ops.constant(axis))


KEYS, QUERIES = positions(5, 0), positions(5, 1)


@pytest.mark.parametrize(
    ("condition", "mask", "window"),
    [
        (lambda: ops.less_equal(KEYS, QUERIES), ("causal",), None),
        (lambda: ops.greater(KEYS, QUERIES), None, None),
        (lambda: ops.less(KEYS, ops.add(QUERIES, ops.constant(numpy.int64(1)))), ("causal",), None),
        (lambda: ops.less(ops.subtract(KEYS, QUERIES), ops.constant(numpy.int64(1))), ("causal",), None),
        (lambda: ops.greater(KEYS, ops.subtract(QUERIES, ops.constant(numpy.int64(3)))), (), 3),
        (lambda: ops.greater_equal(KEYS, ops.subtract(QUERIES, ops.constant(numpy.int64(3)))), (), 4),
        (lambda: ops.less(ops.subtract(QUERIES, KEYS), ops.constant(numpy.int64(3))), (), 3),
        (lambda: ops.greater(KEYS, ops.add(QUERIES, ops.constant(numpy.int64(2)))), None, None),
        (lambda: ops.constant(numpy.tri(5, dtype=bool)), ("causal",), None),
        (lambda: ops.constant(numpy.tri(5, dtype=bool) & ~numpy.tri(5, k=-3, dtype=bool)), ("causal",), 3),
        (lambda: ops.constant(numpy.eye(5, dtype=bool)[::-1].copy()), None, None),
        (lambda: ops.constant(numpy.ones([5, 5], bool)), (), None),
    ],
)
def test_conditions_of_masks_are_found(condition, mask, window):
    found = details(
        Scored(lambda block, product: ops.add(product, ops.select(condition(), number(0.0), number(-numpy.inf))))
    )
    assert (found.mask, found.window) == (mask, window)


@pytest.mark.parametrize(
    ("shape", "mask"),
    [([-1, 1, 1, 1], ("lengths",)), ([1, 1, -1, 1], ("causal",)), ([-1, 1], ("causal",))],
    ids=["lengths", "positions", "positions of all rows"],
)
def test_masks_from_inputs_of_positions_and_lengths(shape, mask):
    class Given(PlainAttention):
        def __init__(self):
            super().__init__()
            self.mask = ops.parameter(shape, numpy.int64)

        def scores(self, product):
            seen = ops.less_equal(KEYS, self.mask)
            return ops.add(product, ops.select(seen, number(0.0), number(-numpy.inf)))

    assert details(Given()).mask == mask


@pytest.mark.parametrize(
    ("added", "mask"),
    [
        (lambda block: block.mask, ("input",)),
        (lambda block: ops.constant(numpy.zeros([1, 1, 1, 5]), dtype=F32), ()),
        (lambda block: ops.constant(numpy.arange(5.0).reshape(1, 1, 1, 5), dtype=F32), ("bias",)),
        (lambda block: ops.atan(block.mask), None),
        (
            lambda block: ops.multiply(
                ops.constant(0.5 ** numpy.arange(1, 5).reshape(4, 1, 1), dtype=F32), ops.convert(KEYS, "f32")
            ),
            ("alibi",),
        ),
    ],
    ids=["input", "zeros", "bias", "unknown", "alibi"],
)
def test_terms_added_to_scores_are_found(added, mask):
    assert details(Scored(lambda block, product: ops.add(product, added(block)))).mask == mask


def test_unknown_forms_have_no_attributes():
    found = details(Scored(lambda block, product: ops.convert(ops.convert(product, "i32"), "f32")))
    assert (found.scale, found.mask, found.sinks, found.window) == (None, None, None, None)
    assert (found.heads, found.head_dim, found.value_head_dim) == (4, 8, 8)


def test_shared_heads_of_a_small_decoder():
    (block, _) = graphpass.analyze_caches(TinyDecoder(fused=False).build()).attention
    assert (block.heads, block.key_heads, block.mask) == (3, 3, ("causal", "input"))


def test_attributes_are_printed_in_words():
    block = AttentionBlock("n", "decomposed", heads=8, key_heads=2, scale=0.25, factors=(0.5, 0.5), mask=(), window=8)
    words = "8 heads over 2, scale 0.25 (0.5 * 0.5), no mask"
    assert attention_in_words(block) == words
    full = dataclasses.replace(block, softcap=50.0, sinks=True, window_in="mask", mask=("causal", "alibi"))
    told = "mask causal+alibi, softcap 50, sinks, window 8 in the mask"
    assert attention_in_words(full, is_cross=True) == f"cross, 8 heads over 2, scale 0.25 (0.5 * 0.5), {told}"
    assert attention_in_words(AttentionBlock("n", "X")) == "heads unknown, scale unknown, mask unknown"
