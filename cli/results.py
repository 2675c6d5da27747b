"""Writing the result of a pipeline, all files or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.errors import UsageError

from .sizes import in_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.model import Dialect, Model

__all__ = ["FILE_NAMES", "refuse_input", "stage_result"]

#: What a model file is called in a folder.
FILE_NAMES: dict[Dialect, str] = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}


def refuse_input(model: Model, target: Path) -> None:
    """Check that writing to ``target`` replaces no file of the pipeline's input.

    The result's own check cannot tell: once converted, a model no longer knows in which files its source kept weights.

    Args:
        model: The pipeline's input.
        target: The model file to be written; an ``.xml`` has a ``.bin`` beside it.

    Raises:
        UsageError: GP203, it would.
    """
    targets = [target, target.with_suffix(".bin")] if target.suffix.lower() == ".xml" else [target]
    for source in _files(model):
        if any(new.exists() and source.exists() and new.samefile(source) for new in targets):
            hint = "write into another folder"
            raise UsageError("GP203", f"writing {target} would overwrite {source}, which belongs to the input", hint)


def _files(model: Model) -> list[Path]:
    if model.path is None:
        return []
    if model.dialect == "openvino":
        return [model.path, model.path.with_suffix(".bin")]

    from graphpass.onnx_model import OnnxModel
    from graphpass.onnx_tensors import external_files

    assert isinstance(model, OnnxModel)
    return [model.path, *external_files(model.proto, model.path).values()]


def stage_result(model: Model, source: Path | None, folder: Path, file_name: str, *, companions: bool) -> list[str]:
    """Write a model, and what belongs to it, into a staged folder.

    Args:
        model: The result.
        source: The file that the pipeline's input was read from, beside which they lie.
        folder: A folder of `graphpass.storage.staging.staging`.
        file_name: Name of the model file.
        companions: Whether configurations and tokenizers beside the source come along.

    Returns:
        The files written, relative to the folder, with their sizes.
    """
    from graphpass.storage.companions import copy_companions
    from graphpass.storage.write import stage_model

    stage_model(model, folder, file_name)
    if companions and source is not None:
        copy_companions(source, folder, model.dialect)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return [f"{file.relative_to(folder)} ({in_bytes(file.stat().st_size)})" for file in files]
