"""The table of docs/onnxruntime.md is what the analysis finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.loaded import exported
from support.models import fixtures

from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.equations.grouped_query import GroupedQuery, find_grouped_queries

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "onnxruntime.md").read_text()
ROWS = {name: tuple(rest.split("|")) for name, rest in re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)}

#: Those with a cache; encoders with their decoders are no business of the table.
DECODERS = sorted(path.parent.parent.name for path in fixtures().glob("*/onnx/model.onnx"))


def described(name: str) -> tuple[str, ...]:
    found = list(exported(f"{name}/onnx").analysis(find_grouped_queries).values())
    first = found[0]
    if not isinstance(first, GroupedQuery):
        return (f"{len(found)} stay: {first.reason}", "", "")
    attention = f"{len(found)} fused" + (", soft cap" if first.softcap else "")
    if first.wants_padding is not None:
        attention += f" with values padded from {first.value_dim} to {first.head_dim}"
    attention += ", sinks" if first.attention.sink is not None else ""
    masks = [one.mask for one in found]
    if not isinstance(masks[0], AttentionMask):
        mask = f"added as a bias: {masks[0].reason.rpartition(': ')[2]}"
    else:
        windows = {one.window for one in masks} - {None}
        mask = "causal, padding" + "".join(f", window {size}" for size in windows)
    if first.rotations is None:
        return attention, mask, "none"
    query = first.rotations[0]
    rotary = f"{query.size} of {query.head_dim}, {'pairs' if query.interleaved else 'halves'}"
    return attention, mask, rotary + (", slots" if query.counts_slots else "")


def test_the_table_has_all_decoders():
    assert sorted(ROWS) == DECODERS


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", DECODERS)
def test_the_table_is_current(name):
    assert tuple(cell.strip() for cell in ROWS[name]) == described(name)
