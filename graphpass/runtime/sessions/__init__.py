"""The decode session and the edits of its caches."""
