"""Caches: which tensors are carried from step to step, and of what kind they are."""
