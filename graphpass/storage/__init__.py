"""Model storage: weights are copied unchanged, writes are atomic, results are read back."""
