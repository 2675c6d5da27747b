"""Shrink models on which a pipeline fails."""
