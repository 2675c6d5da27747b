"""The pass library: one pass a file, listed in `graphpass.passes.catalogue`."""
