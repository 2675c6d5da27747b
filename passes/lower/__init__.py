"""Passes that lower operators of single runtimes to plain ones."""
