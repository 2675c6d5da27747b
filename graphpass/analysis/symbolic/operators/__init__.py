"""Rules that derive elements of outputs from elements of operands, by kind of operator."""
