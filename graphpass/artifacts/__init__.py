"""Files beside a model: manifests, companions, and folders of several models."""
