"""Runtimes: open a model, run steps, and store its caches between them."""
