"""Dimensions of inputs as lengths of the step: by name, by caches, and by the sizes of scores."""

import pytest

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import known_lengths, step_elements, step_lengths
from graphpass.analysis.symbolic.equal_sizes import dimension_name
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST, TOTAL
from graphpass.testing import parse_model

STEP = """%input_ids = Parameter : i64[b, n]
%attention_mask = Parameter : i64[b, t]
%past = Parameter : f32[b, 2, p, 4]
%words = Constant : f32[9, 8]
%x = Gather(%words, %input_ids) {axis=0}
%h = Reshape(%x, [0, 0, 2, 4])
%new = Transpose(%h) {order=[0, 2, 1, 3]}
%present = Concat(%past, %new) {axis=2}
%turned = Transpose(%present) {order=[0, 1, 3, 2]}
%scores = MatMul(%new, %turned)
%u = Unsqueeze(%attention_mask) {axes=[1, 2]}
%kept = Convert(%u) {to=boolean}
%masked = Select(%kept, %scores, -3.4e38)
%w = Softmax(%masked) {axis=3}
%y = MatMul(%w, %present)
Result(%y) {name=logits}
Result(%present) {name=present}"""


def model_of(old="", new=""):
    other = "%kept_mask = Parameter : i64[b, k]\n" if "kept_mask" in new else ""
    model = parse_model(other + STEP.replace(old, new))
    return model, analyze_caches(model).caches


def test_lengths_by_the_names_of_inputs_and_the_axes_of_caches():
    model, caches = model_of()
    found = {dimension_name(size): length for size, length in step_lengths(model, caches).items()}
    # The mask has as many columns as the scores, so that its own dimension is a sum.
    assert found == {"b": "batch", "n": "length", "p": "past"}
    assert "past" not in {*step_lengths(model, ()).values()}


@pytest.mark.parametrize(("mask", "tokens"), [("attention_mask", "input_ids"), ("m", "input_ids"), ("m", "tokens")])
def test_lengths_do_not_depend_on_names(mask, tokens):
    text = STEP.replace("attention_mask", mask).replace("input_ids", tokens)
    model = parse_model(text)
    lengths, bits = known_lengths(model, analyze_caches(model).caches)
    found = {dimension_name(size): length for size, length in lengths.items()}
    assert (found["b"], found["n"], found["p"]) == (BATCH, LENGTH, PAST)
    assert [model.graph.nodes[index].name for index in bits] == [mask]


def test_without_growing_caches_the_past_is_empty():
    model, _ = model_of()
    lengths, _ = known_lengths(model, ())
    assert PAST not in lengths.values()


def test_a_mask_of_a_size_of_its_own_has_the_total():
    model, caches = model_of("Unsqueeze(%attention_mask) {axes=[1, 2]}", "Unsqueeze(%kept_mask) {axes=[1, 2]}")
    found = {dimension_name(size): length for size, length in step_lengths(model, caches).items()}
    assert found["t"] == "total"


def test_shapes_are_in_lengths_of_the_step():
    model, caches = model_of()
    elements = step_elements(model, caches)
    (scores,) = (node for node in model.graph.of_op("MatMul") if node.name == "scores")
    assert elements.shape(scores.outputs[0])[2:] == (LENGTH, TOTAL)
