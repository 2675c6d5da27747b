"""Decode, and edit caches between steps."""
