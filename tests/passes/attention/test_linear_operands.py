"""Operands of linear attention, written from a loop: those of the operator that is lowered to the loop."""

from __future__ import annotations

import numpy
import pytest
from support.linear_attention import RULES, build, feeds, session

from graphpass.analysis.equations.linear_attention import find_linear_attention
from graphpass.passes.attention.linear_operands import rewrite_layers
from graphpass.testing import run

LENGTH = 3


def operands_of(model):
    """Return the operands of the loop of a lowered model, as arrays, with what the operator was fed."""
    looping = run(model, "lower-operators")
    recurrences = looping.analysis(find_linear_attention)

    def write(operands):
        recurrence = operands.recurrence
        key = operands.key()
        made = {"query": operands.query(), "key": key, "value": operands.value(), "past": operands.past()}
        if recurrence.decay is not None:
            made["decay"] = operands.log_decay(recurrence.decay, key)
        if recurrence.corrects:
            made["beta"] = operands.beta(key)
        for name, handle in made.items():
            operands._rewriter.output(f"{name} of the loop", handle, "f32", [None] * (4 if name == "past" else 3))

    assert rewrite_layers(looping, recurrences, write) == (1, ())
    fed = feeds(model, LENGTH, numpy.random.default_rng(0))
    opened = session(looping)
    names = [port.name for port in opened.get_outputs()]
    found = dict(zip(names, opened.run(names, fed), strict=True))
    return {name.partition(" ")[0]: array for name, array in found.items() if name.endswith("of the loop")}, fed


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rows", [False, True])
def test_operands_are_those_of_the_operator(rule, rows):
    found, fed = operands_of(build(rule, 4, 4, rows=rows))
    assert found.keys() == fed.keys()
    # The loop reads scaled queries.
    fed["query"] = fed["query"] * 8**-0.5
    for name, array in found.items():
        numpy.testing.assert_allclose(array.reshape(fed[name].shape), fed[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_one_beta_of_all_heads():
    found, fed = operands_of(build("delta", 4, 4, one_beta=True))
    beta = numpy.broadcast_to(found["beta"], (2, LENGTH, 4)) if found["beta"].shape[2] == 4 else found["beta"]
    numpy.testing.assert_allclose(beta, numpy.broadcast_to(fed["beta"], beta.shape), rtol=1e-6)


def test_layers_that_are_not_rewritten_are_noted():
    model = run(build("delta", 4, 4), "lower-operators")
    before = model.digest()
    recurrences = model.analysis(find_linear_attention)
    count, notes = rewrite_layers(model, recurrences, pytest.fail, lambda each: f"its rule is {each.rule}")
    (name,) = recurrences
    assert (count, notes) == (0, (f"{name} stays unchanged: its rule is delta",))
    assert model.digest() == before
