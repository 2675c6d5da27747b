"""Passes on caches."""
