"""Analyses of a model's structure; each is a function of a `Model` and is kept until the model is edited."""
