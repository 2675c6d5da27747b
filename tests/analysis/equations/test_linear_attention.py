"""Loops over tokens that compute linear attention: its rule, operands and layout; and loops that compute others."""

from __future__ import annotations

import pytest
from support.linear_attention import RULES, build

from graphpass.analysis.equations.linear_attention import find_linear_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.ir.miss import Miss
from graphpass.testing import run


def looping(rule: str = "gated_delta", *heads: int, **form):
    return run(build(rule, *heads, **form), "lower-operators")


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_rules_and_operands_of_loops(rule, rows):
    (found,) = looping(rule, 4, 4, rows=rows).analysis(find_linear_attention).values()
    assert isinstance(found, LinearAttention), found
    assert (found.rule, found.heads, found.groups, found.key_dim, found.value_dim) == (rule, 4, 1, 8, 6)
    assert found.corrects == ("delta" in rule)
    assert (found.decay is not None) == ("gated" in rule)
    assert found.decay is None or found.decay.width == (8 if rows else 1)
    assert len(found.betas) == found.corrects


def test_queries_share_keys():
    (found,) = looping("gated", 6, 2).analysis(find_linear_attention).values()
    assert isinstance(found, LinearAttention), found
    assert (found.heads, found.groups) == (2, 3)


@pytest.mark.parametrize(
    ("kind", "other", "reason"),
    [
        ("Add", "Mul", "computes the new state, expected Add"),
        ("Exp", "Identity", "may be negative"),
        ("Sub", "Add", "expected a corrected value"),
    ],
)
def test_other_loops_name_the_operator_that_differs(kind, other, reason):
    model = looping()
    (loop,) = [node for node in model.proto.graph.node if node.op_type in {"Loop", "Scan"}]
    (body,) = [attribute.g for attribute in loop.attribute if attribute.HasField("g")]
    nodes = [node for node in body.node if node.op_type == kind] or [
        node for node in model.proto.graph.node if node.op_type == kind
    ]
    nodes[-1].op_type = other
    model.mark_edited()
    (found,) = model.analysis(find_linear_attention).values()
    assert isinstance(found, Miss)
    assert reason in found.reason
