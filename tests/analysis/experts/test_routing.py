"""Selections of experts: weights of a softmax, other weights that are not negative, and refusals."""

import pytest

from graphpass.analysis.experts.routing import read_routing
from graphpass.ir.miss import MissError
from graphpass.testing import parse_model

SUM = "%sum = ReduceSum(%top) {axes=[-1], keep=true}\n"
FIRST = "%soft = Softmax(%logits) {axis=-1}\n%top, %chosen = TopK(%soft, [2]) {axis=-1}\n"
LAST = "%top, %chosen = TopK(%logits, [2]) {axis=-1}\n"


def routing_of(text, count=4):
    results = "\nResult(%weights) {name=w}\nResult(%chosen) {name=c}"
    graph = parse_model(f"%logits = Parameter : f32[n, 4]\n{text}{results}").graph
    return read_routing(graph, graph.writes["c"].source(), graph.writes["w"].source(), count)


@pytest.mark.parametrize(
    ("text", "scores", "normalized"),
    [
        (f"{LAST}%weights = Softmax(%top) {{axis=-1}}", "logits", True),
        (f"{FIRST}%weights = Identity(%top)", "logits", False),
        (f"{FIRST}%weights = GatherElements(%soft, %chosen) {{axis=1}}", "logits", False),
        (f"{FIRST}{SUM}%weights = Divide(%top, %sum)", "logits", True),
        (f"{FIRST}{SUM}%some = Add(%sum, 1e-20)\n%weights = Divide(%top, %some)", "logits", True),
        (f"{FIRST}{SUM}%some = Add(%sum, 0.01)\n%weights = Divide(%top, %some)", None, False),
        (f"{FIRST}{SUM.replace('-1', '0')}%weights = Divide(%top, %sum)", None, False),
        (f"{FIRST}%weights = Multiply(%top, 2.5)", None, False),
        (f"{FIRST.replace('{axis=-1}', '{axis=0}', 1)}%weights = Identity(%top)", None, False),
        (f"{FIRST.replace('[2]) {axis=-1}', '[2]) {axis=-1, largest=0}')}%weights = Identity(%top)", None, False),
        (f"%soft = Sigmoid(%logits)\n{LAST}%weights = GatherElements(%soft, %chosen) {{axis=1}}", None, False),
    ],
)
def test_weights_of_a_softmax_are_told_from_others(text, scores, normalized):
    routing = routing_of(text)
    assert (routing.logits and routing.logits.name, routing.is_normalized, routing.slots) == (scores, normalized, 2)


def test_logits_of_other_experts_are_not_the_scores():
    assert routing_of(f"{FIRST}%weights = Identity(%top)", count=5).logits is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{LAST}%weights = Tanh(%top)", "may be negative, because Tanh"),
        (f"{FIRST}%weights = Multiply(%top, [[1.0, -1.0]])", "may be negative, because Constant"),
        (f"{FIRST}%some = Negative(%top)\n%weights = Divide(%top, %some)", "may be negative, because Negative"),
        (f"{FIRST}%weights = ReduceSum(%top) {{axes=[1], keep=true}}", "one weight for each selected expert"),
        (f"{LAST.replace('[2]) {axis=-1}', '[2]) {axis=0}')}%weights = Sigmoid(%top)", "a TopK along axis 1"),
    ],
)
def test_weights_that_may_be_negative_or_do_not_fit_are_refused(text, reason):
    with pytest.raises(MissError, match=reason):
        routing_of(text)
