"""Caches: tensors that are carried from step to step, and their kinds."""
