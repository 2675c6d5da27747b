"""Jobs: convert or rewrite a model, prove the result, and write it."""
