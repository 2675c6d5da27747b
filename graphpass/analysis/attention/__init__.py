"""Analysis of attention blocks: forms, operands, masks and scales."""
