"""Shapes: sizes of tensors."""
