"""Elements of results from those of operands, by kind of operator."""
