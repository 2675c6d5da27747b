"""Passes for the needs of single devices."""
