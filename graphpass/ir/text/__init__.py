"""Write graphs of both dialects as text, an operator a line."""
