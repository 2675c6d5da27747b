"""Tests of passes: graphs from text, tiny models of families, assertions."""

from graphpass.dialects.text import parse_model
from graphpass.testing.assertions import assert_fused, assert_same, assert_text
from graphpass.testing.cases import Case, read_cases
from graphpass.testing.families import FAMILIES, Family
from graphpass.testing.models import run, tiny_model

__all__ = [
    "FAMILIES",
    "Case",
    "Family",
    "assert_fused",
    "assert_same",
    "assert_text",
    "parse_model",
    "read_cases",
    "run",
    "tiny_model",
]
