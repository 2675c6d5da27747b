"""Write manifests and companions beside a model, and folders of several models."""
