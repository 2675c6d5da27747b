"""Open models in each runtime and carry their caches."""
