"""Checks, before long work, that its result can be written."""

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
    """Return the dialect of a pipeline's result.

    Args:
        model: The input.
        passes: The pipeline.
    """
    from graphpass.engine.conditions import OPENVINO

    return "openvino" if any(OPENVINO in step.ensures for step in passes) else model.dialect


def check_sharing(model: Model, dialect: Dialect, scratch: Path) -> None:
    """Check that the result can share the weight files of the input.

    Args:
        model: The input.
        dialect: Dialect of the result: an IR has one weight file.
        scratch: A folder on the file system of the result.

    Raises:
        UsageError: GP230, the files cannot be shared.
    """
    files = model.weight_files
    if not files or (dialect == "openvino" and len(files) > 1):
        described = f"{len(files)}: {', '.join(str(file.path) for file in files)}" if files else "none"
        raise UsageError("GP230", f"--weights share requires one weight file, got {described}", _COPY)
    for file in files:
        link = scratch / "link"
        link_weights(file, link)
        link.unlink()


def check_room(files: Collection[WeightFile], scratch: Path, folder: Path) -> None:
    """Check that copies of weights fit on the file system of the result.

    Args:
        files: The files to copy.
        scratch: A folder on the file system of the result; free space is not required if blocks are cloned into it.
        folder: The folder of the result, for the message.

    Raises:
        WriteError: GP501, the copies do not fit.
    """
    needed = sum(file.size for file in files)
    free = shutil.disk_usage(scratch).free
    if needed > free and not all(shares_blocks(file.path, scratch) for file in files):
        reason = f"cannot write to {folder}: the weights have {needed:,} bytes, and {free:,} are free"
        raise WriteError("GP501", reason, "no file was changed; free space, or choose another folder")


def earlier_files(manifest: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return all files and the model files of an earlier result, from its manifest.

    Both are empty if the manifest is damaged.
    """
    try:
        noted: Mapping[str, Any] = read_json(regular(manifest).read_bytes())
        files = [str(name) for name in noted["output"] if _is_inside(manifest.parent, str(name))]
        return frozenset(files), frozenset(files) & frozenset(map(str, noted["graphs"]))
    except (OSError, ValueError, LookupError, TypeError):
        return frozenset(), frozenset()


def check_other_result(manifest: Path, graphs: Sequence[str], inputs: Iterable[Model], *, replace: bool) -> None:
    """Check that no model of an earlier result would remain beside the new result.

    Args:
        manifest: The manifest of the earlier result.
        graphs: Names of the new model files.
        inputs: The inputs of the new result.
        replace: Whether to remove the earlier result.

    Raises:
        UsageError: GP238, a model of the earlier result would remain; GP203, a file to remove belongs to an input.
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
        reason = f"{manifest.parent} has another result, {', '.join(other)}; runtimes cannot open a folder with both"
        raise UsageError("GP238", reason, "write into another folder, or replace that result with --replace")


def _is_inside(folder: Path, name: str) -> bool:
    return (folder / name).resolve().is_relative_to(folder.resolve()) and not os.path.isabs(name)
