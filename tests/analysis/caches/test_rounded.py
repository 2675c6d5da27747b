"""Caches that all users round to the same numbers."""

import pytest
from support.rounded_keys import with_rounded_keys

from graphpass.analysis.caches.rounded import find_rounded


@pytest.mark.parametrize(("transposed", "order"), [(False, (0, 1, 2, 3)), (True, (0, 1, 3, 2))])
def test_keys_are_found(transposed, order):
    found = find_rounded(with_rounded_keys(transposed=transposed))
    assert [(cache.cache.role, cache.order, len(cache.quantizers)) for cache in found] == [("key", order, 1)] * 2
    assert all(cache.append.op == "Concat" and cache.port == 1 for cache in found)


def test_other_output_ranges_are_left():
    """Rounding again would scale the numbers again."""
    assert find_rounded(with_rounded_keys(results=(-6.0, 6.0))) == ()


def test_caches_with_other_users_are_left():
    model = with_rounded_keys()
    cache = find_rounded(model)[0]
    rewriter = model.rewriter()
    unrounded = rewriter.native(cache.append.outputs[0])
    reader = model.graph.uses(cache.quantizers[0].outputs[0])[0]
    rewriter.redirect(reader.node, reader.port, rewriter.under("other").op("Add", unrounded, unrounded))
    rewriter.finish()
    model.mark_edited()
    assert len(find_rounded(model)) == 1
