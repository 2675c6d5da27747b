"""Remember the weight files of results whose manifests hold no digest of them.

Digests cost a read of all weights. A file of the same size and times holds the same, so that ``--if-changed`` finds the
result of a plain conversion up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.storage import memory
from graphpass.storage.digests import digest_of_file, identity_of
from graphpass.storage.documents import read_json

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def remember_weights(manifest: Path, models: Iterable[Model]) -> None:
    """Remember the weight files that a written result was made from."""
    files = [file for model in models for file in model.weight_files]
    if all(memory.is_settled(file.modified) for file in files):
        memory.remember(memory.memory_of("weights", manifest), _noted(manifest, models))


def is_of(manifest: Path, models: Iterable[Model]) -> bool:
    """Return whether a result was made from the weight files of some models."""
    try:
        return bool(read_json(memory.memory_of("weights", manifest).read_bytes()) == _noted(manifest, models))
    except (OSError, ValueError):  # nothing is remembered, or it is damaged
        return False


def _noted(manifest: Path, models: Iterable[Model]) -> dict[str, Any]:
    files = [file for model in models for file in model.weight_files]
    return {"manifest": digest_of_file(manifest), "weights": [identity_of(file) for file in files]}
