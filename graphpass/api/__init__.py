"""Offer each command of the product as a function; `graphpass.convert` and others are these."""
