"""Convert many models for many targets, and report on it to CI systems."""
