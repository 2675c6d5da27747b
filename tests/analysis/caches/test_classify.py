"""The rule that classifies one carried tensor: its kind, role and axes, or the missing fact."""

import pytest

from graphpass.analysis.attention.reads import attention_reads
from graphpass.analysis.caches.classify import CacheCase, axes_of, classify, read_only
from graphpass.analysis.caches.pairs import Pair, find_pairs
from graphpass.ir.cache import Axes
from graphpass.testing import parse_model

STEP = """%ids = Parameter : i64[b, n]
%x = Parameter : f32[b, n, 8]
%q = Parameter : f32[b, 2, n, 4]
%heads = Reshape(%x, [0, 0, 2, 4])
%new = Transpose(%heads) {{order=[0, 2, 1, 3]}}
%past = Parameter : f32[{past}]
{text}
Result(%y) {{name=logits}}
{write}"""
WRITE = "Result(%present) {name=present}"
KEYS = "%present = Concat(%past, %new) {axis=2}\n"
READ = (
    "%t = Transpose({0}) {{order=[0, 1, 3, 2]}}\n%s = MatMul(%q, %t)\n%w = Softmax(%s) {{axis=3}}\n%y = MatMul(%w, {1})"
)
MIXED = "%mean = ReduceMean(%past) {axes=[2], keep=true}\n%present = Multiply(%new, %mean)\n%y = Add(%q, %present)"
KV = Axes(0, 1, 2, 3)


def case_of(text, past="b, 2, past, 4", write=WRITE):
    model = parse_model(STEP.format(text=text, past=past, write=write))
    graph, reads = model.graph, model.analysis(attention_reads)
    node = graph.reads["past"]
    pairs = [pair for pair in find_pairs(model) if pair.read == node]
    pair = pairs[0] if pairs else Pair(node.outputs[0], None, node, None)
    return CacheCase(model, pair, reads.get(node.index, ()))


@pytest.mark.parametrize(
    ("text", "past", "kind", "role", "axes"),
    [
        (KEYS + READ.format("%present", "%new"), "b, 2, past, 4", "kv", "key", KV),
        (KEYS + READ.format("%new", "%present"), "b, 2, past, 4", "kv", "value", KV),
        (KEYS + READ.format("%present", "%present"), "b, 2, past, 4", "kv", "unknown", KV),
        (KEYS + "%y = Relu(%q)", "b, 2, past, 4", "unknown", "unknown", Axes(batch=0, sequence=2)),
        ("%present = Identity(%past)\n" + READ.format("%past", "%new"), "b, 2, m, 4", "cross", "cross_key", KV),
        ("%present = Relu(%past)\n%y = MatMul(%q, %present)", "b, 2, 4, 4", "linear", "recurrent", Axes(batch=0)),
        ("%y = Relu(%q)\n%one = Slice(%past, [1], [4]) {axes=[3]}\n%last = Slice(%new, [-1], [9]) {axes=[2]}\n"
         "%turned = Transpose(%last) {order=[0, 1, 3, 2]}\n%col = Slice(%turned, [0], [4]) {axes=[2]}\n"
         "%present = Concat(%one, %col) {axis=3}", "b, 2, 4, 4", "linear", "conv", Axes(batch=0)),
        (MIXED, "b, 2, k, 4", "unknown", "unknown", Axes()),
    ],
)  # fmt: skip
def test_kind_role_and_axes(text, past, kind, role, axes):
    cache = classify(case_of(text, past)).cache
    assert (cache.kind, cache.role, cache.axes) == (kind, role, axes)


@pytest.mark.parametrize(
    ("text", "past", "missing"),
    [
        (KEYS + "%y = Relu(%q)", "b, 2, past, 4", "no recognized attention reads the present"),
        (MIXED, "b, 2, k, 4", "not fixed along axis 2"),
    ],
)
def test_unknown_caches_state_the_missing_fact(text, past, missing):
    assert missing in classify(case_of(text, past)).cache.evidence[-1]


def test_an_input_that_attention_reads_unchanged_is_cross():
    entry = read_only(case_of(READ.format("%past", "%new"), "b, 2, m, 4", write=""))
    assert (entry.cache.kind, entry.cache.role, entry.cache.write) == ("cross", "cross_key", None)
    assert entry.reader is not None
    changed = "%weight = Constant : f32[4, 4]\n%half = MatMul(%past, %weight)\n" + READ.format("%half", "%new")
    assert read_only(case_of(changed, "b, 2, m, 4", write="")) is None


@pytest.mark.parametrize(
    ("labels", "shape", "axes"),
    [
        (("batch", "heads", "sequence", "head_dim"), None, KV),
        (("batch", "sequence", ("heads", "head_dim")), ("b", "s", 8), Axes(0, None, 1, 2)),
        (("batch", None, "sequence", ("heads", "head_dim")), ("b", 1, "s", 8), KV),
        (("batch", None, "sequence", ("heads", "head_dim")), ("b", 2, "s", 8), Axes(0, None, 2, 3)),
        (("batch", None, "sequence", "head_dim"), ("b", 1, "s", 8), Axes(0, None, 2, 3)),
    ],
)
def test_labels_become_axes_and_a_latent_has_one_head(labels, shape, axes):
    assert axes_of(labels, shape) == axes
