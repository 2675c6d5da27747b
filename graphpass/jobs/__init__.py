"""Jobs that convert or rewrite a model, verify the result, and write it."""
