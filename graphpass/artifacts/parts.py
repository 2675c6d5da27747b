"""Copy further models and files in the folder of a language model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from graphpass.artifacts.companions import companions
from graphpass.artifacts.manifest import MANIFEST_FILE
from graphpass.errors import ReadError
from graphpass.ir.inputs import EMBEDDINGS
from graphpass.ir.model import Model
from graphpass.model_files import find_language_model, models_beside, parts_of
from graphpass.storage.kernel_copy import copy_file
from graphpass.storage.weight_file import WeightFile, check_unchanged, lies_with, link_weights


@dataclass(frozen=True, slots=True)
class FolderParts:
    """The files in the folder of a language model that are not its companions.

    Attributes:
        folder: The folder; see `graphpass.model_files.parts_of`.
        models: The other models.
        weights: Weight files of these models, by path in the folder.
        others: Paths in the folder of graph files of these models, and of all remaining files.
        folders: Subfolders without these models, which are not copied.
    """

    folder: Path
    models: tuple[Model, ...]
    weights: dict[str, WeightFile]
    others: tuple[str, ...]
    folders: tuple[Path, ...]


def find_folder_parts(model: Model) -> FolderParts | None:
    """Return the files in the folder of a language model whose embeddings other models compute.

    Hidden files, such as those of downloads, are skipped.

    Args:
        model: The model, read from a file.

    Returns:
        The files; ``None`` if the folder has no other model, or several such language models.

    Raises:
        ReadError: As `graphpass.io.load`; GP113, a file is a link to a file outside the folder.
    """
    if model.path is None or EMBEDDINGS not in model.graph.parameters:
        return None
    folder, found = parts_of(model.path)
    if len(found) < 2 or find_language_model(found) != model.path:
        return None
    models = tuple(model.analysis(models_beside).values())
    read = {file.path: file for other in models for file in other.weight_files}
    own = {file.path for file in model.weight_files} - read.keys()
    own |= {file.resolve() for file in (model.path, folder / MANIFEST_FILE, *companions(model.path, "onnx"))}
    used = {folder, *(file.parent for file in found)}
    inside = sorted(path for each in used for path in each.iterdir() if not path.name.startswith("."))
    rest = [path for path in inside if path.is_file() and path.resolve() not in own]
    for file in rest:
        if not file.resolve().is_relative_to(folder.resolve()) and not lies_with(file, model.path):
            reason = f"{file} is a link to {file.resolve()}, outside the folder of {model.path.name}"
            raise ReadError("GP113", reason, "copy the file itself beside the model")
    names = {path.relative_to(folder).as_posix(): path.resolve() for path in rest}
    weights = {name: read[path] for name, path in names.items() if path in read}
    others = tuple(name for name in names if name not in weights)
    folders = tuple(path for path in inside if path.is_dir() and path not in used)
    return FolderParts(folder, models, weights, others, folders)


def stage_parts(parts: FolderParts, folder: Path, *, share: bool) -> tuple[Path, ...]:
    """Write the parts into a staged folder.

    Args:
        parts: The files.
        folder: A folder of `graphpass.storage.staging.staging`.
        share: Whether weights become hard links to the input's files.

    Returns:
        The files of the input that the result shares; empty unless ``share`` is set.

    Raises:
        OSError: The file system reports an error; ``staging`` converts it to a `WriteError`.
        ReadError: GP110, weights changed since the models were read.
        UsageError: GP230, weights cannot be shared.
    """
    for name in (*parts.weights, *parts.others):
        (folder / name).parent.mkdir(exist_ok=True)
    for name, file in parts.weights.items():
        if share:
            link_weights(file, folder / name)
        else:
            copy_file(file.path, folder / name)
    check_unchanged(parts.weights.values())
    for name in parts.others:
        shutil.copyfile(parts.folder / name, folder / name)
    return tuple(file.path for file in parts.weights.values()) if share else ()
