"""Symbolic values: one element of a tensor as an expression of its indices and of the step's lengths."""
