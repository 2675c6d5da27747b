"""Symbolic evaluation: elements of tensors as expressions of indices and of the step's lengths."""
