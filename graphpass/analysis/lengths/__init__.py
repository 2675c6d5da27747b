"""Lengths: equal dimensions, and what depends on positions."""
