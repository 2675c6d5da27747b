"""Reports for people: one self-contained HTML file about a model's caches."""

from graphpass.reports.page import render, write

__all__ = ["render", "write"]
