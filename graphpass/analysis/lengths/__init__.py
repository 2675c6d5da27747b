"""Lengths: equal dimensions, thresholds, and dependence on positions in caches."""
