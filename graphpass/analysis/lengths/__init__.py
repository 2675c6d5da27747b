"""Lengths: which dimensions are equal, and what depends on positions."""
