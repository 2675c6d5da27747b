"""Total sizes of caches; one unknown size makes a total unknown."""

import pytest
from support.caches import cache, inventory

from graphpass.ir.cache import Axes
from graphpass.reports.totals import known_sum, total_bytes

STATE = cache("s", kind="linear", axes=Axes(batch=0), shape=("b", 5, 4))
CROSS = cache("c", kind="cross", shape=("b", 2, "encoder", 8))


def test_sizes_are_summed_by_kind():
    totals = total_bytes(inventory(cache("a"), cache("b", element_type="f16"), STATE, CROSS, cache("d", kind="other")))
    assert (totals.bytes_per_token, totals.bytes_per_1k_tokens) == (32 + 16, 48_000)
    assert (totals.fixed_bytes, totals.bytes_per_encoder_token) == (80, 64)


def test_an_unknown_size_makes_only_its_total_unknown():
    totals = total_bytes(inventory(cache("a"), cache("b", shape=("b", 2, "past", "d")), STATE))
    assert (totals.bytes_per_token, totals.bytes_per_1k_tokens, totals.fixed_bytes) == (None, None, 80)


@pytest.mark.parametrize(("sizes", "total"), [([], 0), ([1, 2], 3), ([1, None], None)])
def test_sums_of_known_sizes(sizes, total):
    assert known_sum(sizes) == total
