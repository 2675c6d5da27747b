"""Masks: what hides or weighs positions."""
