"""Equations: functions that exporters decompose into many operators, recognized by their values."""
