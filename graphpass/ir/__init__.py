"""The neutral model, graph and rewriter that all analyses and passes share."""
