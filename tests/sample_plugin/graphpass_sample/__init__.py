"""A third party's pass, and its target with rules, trial and view."""
