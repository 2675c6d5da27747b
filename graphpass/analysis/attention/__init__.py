"""Attention: where it is computed, from which operands, by which operators."""
