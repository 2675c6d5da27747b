"""Passes on masks of attention."""
