"""Compare two models: structure, ports, caches, metadata, and contents of weights."""

from graphpass.reports.diff.changes import Change, ModelDifference, WeightChanges
from graphpass.reports.diff.models import diff_models

__all__ = ["Change", "ModelDifference", "WeightChanges", "diff_models"]
