"""Test passes: graphs from text, tiny models of families, assertions."""

from graphpass.testing.parse import parse

__all__ = ["parse"]
