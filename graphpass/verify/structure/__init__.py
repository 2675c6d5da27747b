"""Equality of two graphs for every input, as expressions of indices."""
