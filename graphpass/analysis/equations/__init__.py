"""Equations: functions that exporters spell out in many operators, shown by computing them."""
