"""Conversion of a matrix of models and targets, with reports for CI systems."""
