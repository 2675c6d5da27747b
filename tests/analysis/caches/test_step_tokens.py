"""Tokens that a step accepts: windows that roll, masks of new tokens, inputs that are returned, padding in states."""

import onnx.parser
import pytest
from support.slot_caches import slot_decoder

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import absorbs_attention, absorbs_padding, find_step_tokens, visual_levels
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.testing import parse_model

MODEL = """%tokens = Parameter : f32[b, n, 4]
%attention_mask = Parameter : f32[b, total]
%state = Parameter : f32[b, 4, 3]
%kept = Parameter : f32[2]
%mask = Unsqueeze(%attention_mask, 2)
{text}
%turned = Transpose(%x, [0, 2, 1])
%column = Slice(%turned, [-1], [9], [1], [2])
{window}
%y = MatMul(%x, %present)
Result(%y) {{name=logits}}
Result(%present) {{name=present}}"""
ROLL = "%rolled = Roll(%state, [-1], [2])\n%present = Add(%rolled, %column)"
SHIFT = "%late = Slice(%state, [1], [3], [1], [2])\n%present = Concat(%late, %column) {axis=2}"
PLAIN = "%x = Relu(%tokens)"


def tokens_of(text=PLAIN, window=SHIFT, more=""):
    model = parse_model(MODEL.format(text=text, window=window) + more, "openvino")
    return model, analyze_caches(model), find_step_tokens(model, analyze_caches(model))


@pytest.mark.parametrize(("window", "one"), [(ROLL, True), (SHIFT, False)])
def test_a_rolled_window_accepts_one_token(window, one):
    assert tokens_of(window=window)[2].one_by_one == one


@pytest.mark.parametrize(
    ("text", "weighed"),
    [
        ("%x = Multiply(%tokens, %mask)", True),
        ("%first = Slice(%mask, [0], [5], [1], [1])\n%x = Multiply(%tokens, %first)", True),
        ("%last = Slice(%mask, [-1], [9], [1], [1])\n%x = Multiply(%tokens, %last)", False),
        ("%x = Add(%tokens, %mask)", False),
    ],
)
def test_masks_that_weigh_new_tokens(text, weighed):
    assert tokens_of(text)[2].masks_new_tokens == weighed


@pytest.mark.parametrize(
    ("more", "passed", "returned"),
    [
        ("", {"kept"}, set()),
        ("\nResult(%kept) {name=same}", {"kept", "same"}, {"same"}),
        ("\n%twice = Multiply(%kept, 2.0)\nResult(%twice) {name=same}", set(), set()),
        ("\n%one = Constant : f32[1]\nResult(%one) {name=one}", {"kept"}, {"one"}),
    ],
)
def test_inputs_that_no_step_uses(more, passed, returned):
    found = tokens_of(more=more)[2]
    assert (found.passed_on, found.returned) == (passed, returned)


@pytest.mark.parametrize(("text", "absorbs"), [(PLAIN, True), ("%x = Multiply(%tokens, %mask)", False)])
def test_padding_changes_states_that_no_mask_weighs(text, absorbs):
    model, inventory, _ = tokens_of(text)
    cache = next(cache for cache in inventory.of_kind("linear") if cache.read == "state")
    assert absorbs_padding(model, cache) == absorbs
    assert not absorbs_attention(model, cache)


FUSED = """<ir_version: 10, opset_import: ["": 24]>
agraph (float[b, n, 4] tokens, bool[n, all] attention_mask, float[b, 1, p, 4] key, float[b, 1, p, 4] value,
        float[b, 4, 2] state) => (float[b, n, 4] logits, float[b, 1, all, 4] k, float[b, 1, all, 4] v,
        float[b, 4, 2] present)
<int64[1] start = {-2}, int64[1] stop = {9999}, int64[1] axis = {2}> {
   logits, k, v = Attention <q_num_heads: int = 1, kv_num_heads: int = 1>
       (tokens, tokens, tokens, attention_mask, key, value)
   turned = Transpose <perm = [0, 2, 1]> (logits)
   whole = Concat <axis = 2> (state, turned)
   present = Slice (whole, start, stop, axis)
}"""


def test_a_mask_inside_of_fused_attention_weighs_no_states():
    model = OnnxModel(onnx.parser.parse_model(FUSED))
    (cache,) = analyze_caches(model).of_kind("linear")
    assert absorbs_padding(model, cache)
    assert absorbs_attention(model, cache)


@pytest.mark.parametrize(
    ("reads", "levels"),
    [
        ("%a = Gather({}, 0) {{axis=0}}\n%b = Gather({}, 2) {{axis=0}}\n%c = Add(%a, %b)", 3),
        ("%c = Gather({}, 1) {{axis=1}}", 0),
        ("%c = Gather({}, %level) {{axis=0}}", 0),
        ("%d = ReduceSum({}, [0])\n%c = Relu(%d)", 0),
    ],
)
def test_visual_features_are_counted_by_the_layers_that_gather_them(reads, levels):
    features = "%deepstack_visual_embeds"
    inputs = f"{features} = Parameter : f32[levels, n, 8]\n%level = Parameter : i64[]\n"
    model = parse_model(f"{inputs}{reads.format(features, features)}\nResult(%c) {{name=out}}", "openvino")
    assert visual_levels(model.graph) == levels


def test_counters_and_their_outputs():
    model = slot_decoder("onnx")
    found = find_step_tokens(model, analyze_caches(model))
    assert (found.counters, found.returned) == ({"count"}, {"count_after"})
