"""Attention: its places, forms, operands and readers."""
