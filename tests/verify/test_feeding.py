"""Unequal operators on random numbers in place of equal values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.loaded import converted, exported

from graphpass.verify import compare, compare_within
from graphpass.verify.feeding import feed
from graphpass.verify.structure.proof import compare_structures

if TYPE_CHECKING:
    from graphpass.ir.model import Model

#: No prompt of these tests makes numbers as large.
LIMIT = 10.0


def clipped(model: Model, place: int) -> tuple[Model, str]:
    """Return a copy in which an operand of one product is clipped, and the name of the first operator of that."""
    copy = model.clone()
    rewriter = copy.rewriter()
    write = rewriter.under("clipped")
    product = [node for node in copy.graph.of_op("MatMul") if node.source().element_type == "f32"][place]
    above = write.op("Maximum", product.source(), write.number(-LIMIT, "f32"), name="above")
    rewriter.redirect(product, 0, write.op("Minimum", above, write.number(LIMIT, "f32")))
    rewriter.finish()
    return copy, "above"


@pytest.mark.parametrize(("target", "place"), [("cpu", 5), ("ort", 2)])
def test_faults_beyond_all_prompts_are_found(target, place):
    reference = exported("llama/onnx")
    faulty, name = clipped(converted(reference, target).model, place)
    assert compare(reference, faulty, steps=1).passed
    found = compare_within(reference, faulty, steps=1)
    assert not found.passed, found.summary()
    assert found.divergence is not None
    assert "random numbers" in found.divergence.reason
    assert str(found.divergence.place).endswith(name)
    assert compare_within(reference, faulty, steps=1, allow=[name]).passed


@pytest.mark.parametrize(("place", "target"), [("deepseek_v3/onnx", "ort"), ("llama/onnx", "ort{logits=last}")])
def test_results_compared_by_numbers_agree(place, target):
    reference = exported(place)
    found = compare_structures(reference, converted(reference, target).model, feed)
    assert found is not None
    assert found.fed is not None
    assert found.fed.reason is None
    assert found.fed.difference is None
    assert found.fed.runs == 8
    assert found.fed.values


def test_roots_are_fed_numbers_near_the_epsilon_of_norms():
    reference = exported("llama/onnx")
    faulty = converted(reference).model.clone()
    total = next(node for node in faulty.graph.nodes if node.name == "/model/norm/Add")
    rewriter = faulty.rewriter()
    twice = rewriter.under("twice").op("Add", total.source(0), total.source(1), name="twice")
    rewriter.redirect(total, 0, twice)
    rewriter.finish()
    assert compare(reference, faulty, steps=1).passed
    found = compare_within(reference, faulty, steps=1)
    assert not found.passed, found.summary()
    assert found.divergence is not None
    assert found.divergence.place == "Add /model/norm/Add"
