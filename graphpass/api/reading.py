"""Read models that are given as paths or loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from graphpass.ir.model import Model
from graphpass.jobs import reading
from graphpass.jobs.watch import Watch

StrPath: TypeAlias = str | os.PathLike[str]

#: A path as the command line takes it, or a loaded model.
Given: TypeAlias = StrPath | Model


def read_model(source: Given, caches: Iterable[str], watch: Watch | None) -> Model:
    """Return the model that ``source`` means.

    Args:
        source: A file, a folder that holds one model, or a model.
        caches: Declarations of caches, for models that are read here: ``past_0=kv,sequence=2``.
        watch: Chooses one of several models of a folder.

    Raises:
        ReadError, UsageError: As `graphpass.jobs.reading.read_model`.
    """
    if isinstance(source, Model):
        return source
    return reading.read_model(Path(source), caches, (watch or Watch()).choose)
