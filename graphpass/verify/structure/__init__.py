"""Equality of two graphs for every input: both are written as functions of indices and compared as expressions."""
