"""Symbolic comparison of two graphs: tensors as expressions of their indices, equal for every input."""
