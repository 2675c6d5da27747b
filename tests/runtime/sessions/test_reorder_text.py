"""The execution provider's way to write a reorder."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from graphpass.errors import UsageError
from graphpass.runtime import parse_reorder

SLOTS = st.integers(0, 2**31 - 1)


@given(st.lists(st.tuples(SLOTS, SLOTS), min_size=1, unique_by=lambda pair: pair[1]))
def test_reads_sources_then_destinations(pairs: list[tuple[int, int]]) -> None:
    sources, destinations = [list(side) for side in zip(*pairs, strict=True)]
    text = ";".join(",".join(map(str, side)) for side in (sources, destinations))
    assert parse_reorder(text) == (sources, destinations)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1,2", "0 semicolons"),
        ("1;2;3", "2 semicolons"),
        ("1,2;3", "2 sources, but 1 destinations"),
        ("1,2;3,3", "named twice"),
        (";", "'' is not a slot"),
        ("1,;2,3", "'' is not a slot"),
        ("-1;2", "'-1' is not a slot"),
        ("+1;2", r"'\+1' is not a slot"),
        ("1x;2", "'1x' is not a slot"),
        ("1; 2", "' 2' is not a slot"),
        ("1;2.0", "'2.0' is not a slot"),
        ("1;٣", "is not a slot"),
        ("1;2147483648", "'2147483648' is not a slot"),
    ],
)
def test_refuses_other_text(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        parse_reorder(text)
    assert caught.value.id == "GP249"
