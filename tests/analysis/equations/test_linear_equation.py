"""The equation of linear attention, by its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from graphpass.analysis.equations.linear_equation import Equation, Factor, Role, Sample
from graphpass.ir.graph import Value
from graphpass.ir.miss import MissError
from graphpass.testing import parse_model

RANDOM = numpy.random.default_rng(0)
BATCH, HEADS, KEYS, VALUES = 2, 3, 4, 5
LENGTHS = (3, 1, 4)
MODEL = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}")
(NODE,) = MODEL.graph.of_op("Relu")
VALUE = NODE.outputs[0]


def factor(width: int, heads: int = HEADS) -> Factor:
    runs = tuple(RANDOM.uniform(0.1, 1, (BATCH, length, heads, max(width, 1))).astype("f4") for length in LENGTHS)
    return Factor(Role(VALUE, (0, 1, 2, 3), (), width), runs)


def equation(**given: object) -> Equation:
    made = Equation(factor(KEYS), factor(KEYS), factor(VALUES), [], factor(1), [factor(1)], corrects=True)
    return replace(made, **given)


def written_out(made: Equation, run: int, state: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Compute the recurrence of the module's docstring, head by head."""
    query, key, value = (factor.runs[run] for factor in (made.query, made.key, made.value))
    state, results = state.copy(), numpy.zeros((BATCH, LENGTHS[run], HEADS, VALUES), "f4")
    for row in range(BATCH):
        for token in range(LENGTHS[run]):
            for head in range(HEADS):
                own = state[row, head]
                if made.decay is not None:
                    own = own * made.decay.runs[run][row, token, head][:, None]
                new = value[row, token, head]
                for scale in made.scales:
                    new = new * scale.runs[run][row, token, head]
                if made.corrects:
                    new = new - key[row, token, head] @ own
                for beta in made.betas:
                    new = new * beta.runs[run][row, token, head]
                state[row, head] = own + numpy.outer(key[row, token, head], new)
                results[row, token, head] = query[row, token, head] @ state[row, head]
    return state, results


FORMS = {
    "linear": equation(decay=None, betas=[], corrects=False),
    "gated": equation(betas=[], corrects=False),
    "gated by rows": equation(decay=factor(KEYS), betas=[], corrects=False),
    "delta": equation(decay=None),
    "gated_delta": equation(),
    "scaled": equation(scales=[factor(1)]),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_equation_is_the_recurrence(name):
    made = FORMS[name]
    for run in range(len(LENGTHS)):
        state = RANDOM.standard_normal((BATCH, HEADS, KEYS, VALUES)).astype("f4")
        for actual, wanted in zip(made.compute(run, state), written_out(made, run, state), strict=True):
            numpy.testing.assert_allclose(actual.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)


def samples(made: Equation, order=(0, 1, 2, 3, 4), *, transposed=False, scale=1.0, merged=False) -> list[Sample]:
    runs = []
    for place, length in enumerate(LENGTHS):
        start = RANDOM.standard_normal((BATCH, HEADS, KEYS, VALUES)).astype("f4")
        end, result = made.compute(place, start)
        result = (result * scale).transpose(order)
        if merged:
            result = result.reshape(BATCH, length, -1)
        if transposed:
            start, end = start.swapaxes(2, 3), end.swapaxes(2, 3)
        runs.append(Sample(length, start, end, result))
    return runs


EQUATION = equation()


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 2, 1, 3, 4), (0, 1, 4, 2, 3)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_layout_and_scale_of_the_result_are_found(order, transposed, scale):
    runs = samples(EQUATION, order, transposed=transposed, scale=scale)
    found = EQUATION.found(runs, (VALUE,) * 3, NODE)
    assert found is not None
    assert (found.transposed, found.scale) == (transposed, scale)
    # The axis of one query for each head may be anywhere.
    assert [axis for axis in found.order if axis != 3] == [axis for axis in order if axis != 3]
    assert (found.heads, found.groups, found.key_dim, found.value_dim) == (HEADS, 1, KEYS, VALUES)


def test_the_target_of_a_reshape_keeps_batch_and_tokens():
    found = EQUATION.found(samples(EQUATION, merged=True), (VALUE,) * 3, NODE)
    assert found.shape == (0, -1, HEADS * VALUES)


def test_results_that_merge_batch_and_tokens_are_a_miss():
    runs = [replace(run, result=run.result.reshape(BATCH * run.length, HEADS, VALUES)) for run in samples(EQUATION)]
    with pytest.raises(MissError, match="merges batch or tokens"):
        EQUATION.found(runs, (VALUE,) * 3, NODE)


@pytest.mark.parametrize("changed", ["end", "result"])
def test_other_numbers_are_not_the_equation(changed):
    runs = samples(EQUATION)
    runs[2] = replace(runs[2], **{changed: getattr(runs[2], changed) * numpy.float32(1.01)})
    assert EQUATION.found(runs, (VALUE,) * 3, NODE) is None


def test_incompatible_sizes_have_no_widths():
    assert EQUATION.widths() == (KEYS, VALUES)
    assert replace(EQUATION, query=factor(KEYS + 1)).widths() is None
    assert replace(EQUATION, decay=factor(VALUES)).widths() is None


@pytest.mark.parametrize(
    ("decay", "corrects", "rule"),
    [(None, False, "linear"), (factor(1), False, "gated"), (None, True, "delta"), (factor(1), True, "gated_delta")],
)
def test_rules_have_the_names_of_the_operator(decay, corrects, rule):
    made = replace(EQUATION, decay=decay, corrects=corrects)
    assert made.found(samples(made), (VALUE,) * 3, NODE).rule == rule


def test_another_layer_has_the_same_attention_on_its_tensors():
    found = EQUATION.found(samples(EQUATION), (VALUE,) * 3, NODE)
    other = NODE.inputs[0]
    assert isinstance(other, Value)
    moved = found.moved({VALUE: other})
    assert {moved.past, moved.present, moved.output, moved.query.source, moved.decay.source} == {other}
    assert replace(moved, past=VALUE, present=VALUE, output=VALUE).moved({VALUE: VALUE, other: VALUE}) == found
