"""Mixtures of experts: layers that exporters wrote out, and their equations."""
