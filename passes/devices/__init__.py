"""Passes for single devices."""
