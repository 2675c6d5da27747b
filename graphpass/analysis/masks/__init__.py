"""Masks: they hide or weigh positions."""
