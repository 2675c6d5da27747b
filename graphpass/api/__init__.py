"""Python functions for the commands of `graphpass`, exported as `graphpass.convert` and others."""
