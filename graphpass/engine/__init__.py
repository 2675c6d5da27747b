"""Passes, pipelines and the manager that runs them."""
