"""The pass library: one pass a file. Passes are found through the entry point group ``graphpass.passes``."""
