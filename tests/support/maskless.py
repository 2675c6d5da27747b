"""A tiny decoder without the input attention_mask."""

from __future__ import annotations

from graphpass.dialects.text import parse_model
from graphpass.ir.model import Model
from graphpass.testing import FAMILIES
from graphpass.testing.families import text_of_family


def maskless(family: str = "llama") -> Model:
    """Return a decoder whose attention is causal, and excludes no padding."""
    causal = "LogicalAnd(%before, %mask.wide)"
    text = text_of_family(FAMILIES[family], 1)
    assert causal in text
    lines = text.replace(causal, "LogicalAnd(%before, true)").splitlines()
    removed = ("%attention_mask = ", "%mask = ", "%mask.wide = ")
    return parse_model("\n".join(line for line in lines if not line.startswith(removed)))
