"""Records of the weight files of results whose manifests have no weight digests.

Digests require a read of all weights. A file with unchanged size and times counts as unchanged, so that
``--if-changed`` recognizes the result of a conversion without digests.
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
    """Record the weight files of the input of a written result.

    Args:
        manifest: The manifest of the result, by which the record is found.
        models: The models of the input, as read.
    """
    files = [file for model in models for file in model.weight_files]
    if all(memory.is_settled(file.modified) for file in files):
        memory.remember(memory.memory_of("weights", manifest), _noted(manifest, models))


def is_of(manifest: Path, models: Iterable[Model]) -> bool:
    """Return whether the recorded input of a result has the weight files of ``models``.

    Args:
        manifest: The manifest of the result, which must be unchanged.
        models: The models of the input, as read.
    """
    try:
        return bool(read_json(memory.memory_of("weights", manifest).read_bytes()) == _noted(manifest, models))
    except (OSError, ValueError):  # the record is missing or damaged
        return False


def _noted(manifest: Path, models: Iterable[Model]) -> dict[str, Any]:
    files = [file for model in models for file in model.weight_files]
    return {"manifest": digest_of_file(manifest), "weights": [identity_of(file) for file in files]}
