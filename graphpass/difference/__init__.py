"""How two models differ: structure, ports, caches, metadata, and weights by what they hold."""

from graphpass.difference.changes import Change, Difference, WeightChanges
from graphpass.difference.models import diff_models

__all__ = ["Change", "Difference", "WeightChanges", "diff_models"]
