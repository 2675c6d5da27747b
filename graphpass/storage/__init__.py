"""Write models: weights untouched, all files or none, read back before they take their place."""
