"""Operators between a cache and the attention that reads it: the kind of the cache is that of the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.loaded import exported
from support.unknown_caches import decoder_with_unknown_cache

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError
from graphpass.ir.declaration import parse_declaration
from graphpass.verify import compare_within
from graphpass.verify.cache_kinds import with_kinds_of
from graphpass.verify.models import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.graph import Value
    from graphpass.ir.rewriter import Writer

    Change = Callable[[Writer, Value], Any]


def clipped(write: Writer, value: Value) -> Any:
    return write.op("Minimum", value, write.number(0.5, "f32"))


def negated_twice(write: Writer, value: Value) -> Any:
    return write.op("Negative", write.op("Negative", value))


def with_changed_present(change: Change) -> Any:
    """Return Llama with GroupQueryAttention, and an operator between it and a present."""
    mutant = exported("llama/onnx-genai").clone()
    rewriter = mutant.rewriter()
    result = mutant.graph.writes["present.1.key"]
    rewriter.redirect(result, 0, change(rewriter.under("fault"), result.source()))
    rewriter.finish()
    mutant.mark_edited()
    return mutant


def test_a_fault_between_attention_and_a_cache_is_a_difference_at_its_operator():
    reference, mutant = exported("llama/onnx-genai"), with_changed_present(clipped)
    assert analyze_caches(mutant).cache("past_key_values.1.key").kind == "unknown"
    found = verify(reference, mutant, steps=2)
    assert not found.passed
    assert found.divergence is not None
    assert found.divergence.step == 1
    assert found.structure is not None
    assert [region.operator for region in found.structure.regions] == ["Minimum"]
    assert any(line.startswith("kinds of caches: ") and "past_key_values.1.key" in line for line in found.skipped)


def test_equal_models_are_proven_and_still_refused_as_results():
    reference, mutant = exported("llama/onnx-genai"), with_changed_present(negated_twice)
    found = verify(reference, mutant, steps=1)
    assert found.is_proven
    assert "past_key_values.1.key" in found.skipped[-1]
    with pytest.raises(UnsupportedError, match=r"past_key_values\.1\.key .* of kind unknown") as error:
        compare_within(reference, mutant, steps=1)
    assert error.value.id == "GP320"


def test_the_candidate_is_not_edited_and_known_caches_are_kept():
    reference, mutant = exported("llama/onnx-genai"), with_changed_present(clipped)
    declared, lines = with_kinds_of(reference, mutant)
    assert declared is not mutant
    assert len(lines) == 1
    assert not mutant.declarations
    own, other = (analyze_caches(model).cache("past_key_values.1.key") for model in (reference, declared))
    assert (other.kind, other.role, other.axes) == (own.kind, own.role, own.axes)
    assert with_kinds_of(reference, reference) == (reference, ())


@pytest.mark.parametrize(("axis", "kind"), [(1, "kv"), (0, "unknown")])
def test_kinds_that_the_dataflow_contradicts_are_not_declared(axis, kind):
    reference, candidate = decoder_with_unknown_cache(1), decoder_with_unknown_cache(axis)
    reference.declare([parse_declaration("past=kv,sequence=1,batch=0")])
    found, _ = with_kinds_of(reference, candidate)
    assert analyze_caches(found).cache("past").kind == kind
