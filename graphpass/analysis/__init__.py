"""Analyze a model's structure; each analysis is kept until the model is edited."""
