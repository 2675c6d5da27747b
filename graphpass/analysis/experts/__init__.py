"""Decomposed mixtures of experts: routing, products and activations."""
