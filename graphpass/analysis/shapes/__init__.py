"""Shapes: sizes of tensors, and constants that are computed from them."""
