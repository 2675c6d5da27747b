"""A third party's pass and target."""
