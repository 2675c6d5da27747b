"""Arguments that are a path or a loaded model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from graphpass.ir.model import Model
from graphpass.jobs import reading
from graphpass.jobs.watch import Watch

StrPath: TypeAlias = str | os.PathLike[str]

#: A path of a model, or a loaded model.
ModelSource: TypeAlias = StrPath | Model


def read_model(source: ModelSource, caches: Iterable[str], watch: Watch | None) -> Model:
    """Return the model at the path ``source``; a loaded model is returned unchanged.

    Args:
        source: A file, a folder with one model, or a loaded model.
        caches: Declarations of unknown caches, ignored for loaded models: ``past_0=kv,sequence=2``.
        watch: Selects the model if a folder has several.

    Raises:
        ReadError, UsageError: As `graphpass.jobs.reading.read_model`.
    """
    if isinstance(source, Model):
        return source
    return reading.read_model(Path(source), caches, (watch or Watch()).choose)
