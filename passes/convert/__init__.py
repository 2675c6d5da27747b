"""Passes that convert between dialects, branches and precisions."""
