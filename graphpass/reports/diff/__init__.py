"""How two models differ: structure, ports, caches, metadata, and weights by what they hold."""

from graphpass.reports.diff.changes import Change, Difference, WeightChanges
from graphpass.reports.diff.models import diff_models

__all__ = ["Change", "Difference", "WeightChanges", "diff_models"]
