"""Reports for people: one self-contained HTML file about a model's caches."""

from graphpass.report.page import render, write

__all__ = ["render", "write"]
