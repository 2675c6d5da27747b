"""What is written beside a model, and folders of several models."""
