"""The text form of graphs of both dialects, one operator per line."""
