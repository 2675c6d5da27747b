"""Passes on shapes and lengths."""
