"""Compare two models layer by layer, for any size."""
