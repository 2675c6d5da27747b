"""Helpers that tests of several rooms share; those of one room are in its folder."""
