"""Passes on mixtures of experts."""
