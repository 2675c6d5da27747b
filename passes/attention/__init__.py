"""Passes on attention and positions."""
