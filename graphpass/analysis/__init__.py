"""Analyses of a model's structure; results are cached until the model is edited."""
