"""Refuse, before long work, results that could not be written after it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.errors import UsageError, WriteError
from graphpass.io import is_same_place
from graphpass.storage.documents import read_json, regular
from graphpass.storage.kernel_copy import shares_blocks
from graphpass.storage.weight_file import link_weights

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.ir.model import Model
    from graphpass.ir.types import Dialect
    from graphpass.storage.weight_file import WeightFile

_COPY = "write with --weights copy"


def dialect_after(model: Model, passes: Iterable[Pass[Any]]) -> Dialect:
    """Return the dialect of a pipeline's result."""
    from graphpass.engine.conditions import OPENVINO

    return "openvino" if any(OPENVINO in step.ensures for step in passes) else model.dialect


def check_sharing(model: Model, dialect: Dialect, scratch: Path) -> None:
    """Check that the result's weights can be the model's own files.

    Args:
        model: The input.
        dialect: Dialect of the result: an IR keeps its weights in one file.
        scratch: A folder on the file system of the result.

    Raises:
        UsageError: GP230, they cannot.
    """
    files = model.weight_files
    if not files or (dialect == "openvino" and len(files) > 1):
        where = f"in {len(files)} files: {', '.join(str(file.path) for file in files)}" if files else "in no file"
        raise UsageError("GP230", f"weights can be shared where they lie in one file; these lie {where}", _COPY)
    for file in files:
        link = scratch / "link"
        link_weights(file, link)
        link.unlink()


def check_room(files: Collection[WeightFile], scratch: Path) -> None:
    """Check that copies of weights fit on the file system of the result.

    Raises:
        WriteError: GP501, they do not.
    """
    needed = sum(file.size for file in files)
    free = shutil.disk_usage(scratch).free
    if needed > free and not all(shares_blocks(file.path, scratch) for file in files):
        reason = f"cannot write to {scratch.parent}: the weights take {needed:,} bytes, and {free:,} are free"
        raise WriteError("GP501", reason, "nothing was changed; make room, or choose another folder")


def earlier_files(manifest: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return all files and the graphs of a result; none if its manifest is damaged."""
    try:
        noted: Mapping[str, Any] = read_json(regular(manifest).read_bytes())
        files = [str(name) for name in noted["output"] if _is_inside(manifest.parent, str(name))]
        return frozenset(files), frozenset(files) & frozenset(map(str, noted["graphs"]))
    except (OSError, ValueError, LookupError, TypeError):
        return frozenset(), frozenset()


def check_other_result(manifest: Path, graphs: Sequence[str], inputs: Iterable[Model], *, replace: bool) -> None:
    """Check that no graph of an earlier result would stay beside the new ones.

    Args:
        manifest: The manifest of the earlier result.
        graphs: Names of the new ones.
        inputs: The models that the new result is made from.
        replace: Whether the earlier result is to be removed.

    Raises:
        UsageError: GP238, one would stay; GP203, a file to be removed belongs to an input.
    """
    files, earlier = earlier_files(manifest)
    other = sorted(earlier - set(graphs))
    if replace and other:
        read = {file for model in inputs for file in (model.path, *(weights.path for weights in model.weight_files))}
        for file in read:
            if file is not None and any(is_same_place(manifest.parent / name, file) for name in files):
                reason = f"replacing the result in {manifest.parent} would remove {file}, which belongs to the input"
                raise UsageError("GP203", reason, "write into another folder")
    elif other:
        reason = f"{manifest.parent} holds another result, {', '.join(other)}; no runtime opens a folder with both"
        raise UsageError("GP238", reason, "write into another folder, or replace that result with --replace")


def _is_inside(folder: Path, name: str) -> bool:
    return (folder / name).resolve().is_relative_to(folder.resolve()) and not os.path.isabs(name)
