"""Writes a model: staged, read back, then moved to its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.errors import GraphpassError, UsageError, WriteError
from graphpass.model import Dialect, Dimension, Model, Port, load
from graphpass.storage.staging import staging

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_destination", "stage_model", "write_model"]

_SUFFIXES: dict[Dialect, str] = {"onnx": ".onnx", "openvino": ".xml"}


def write_model(model: Model, path: Path, limit: int | None = None) -> None:
    """Write a model, all files or none.

    Args:
        model: What to write; its weights are copied as they are.
        path: The ``.onnx`` file, or the ``.xml`` file beside which the ``.bin`` file goes.
        limit: Size in bytes above which an ONNX model's weights get a file of their own; protobuf's by default.

    Raises:
        UsageError: GP202 the suffix does not fit; GP203 it would overwrite the model's own input.
        WriteError: GP501 the file system's words; GP502 what was written does not read back; GP503 too large.
    """
    check_destination(model, path)
    with staging(path.parent) as folder:
        stage_model(model, folder, path.name, limit)


def check_destination(model: Model, path: Path) -> None:
    """Check that a model may be written to ``path``.

    Raises:
        UsageError: GP202 the suffix does not fit the dialect; GP203 a file to be written is one of the model's input.
    """
    suffix = _SUFFIXES[model.dialect]
    if path.suffix.lower() != suffix:
        raise UsageError("GP202", f"{path} is no name for a model in {model.dialect}", f"let it end in {suffix}")
    weights = _weights(model)
    sources = [*([model.path] if model.path is not None else []), *weights.values()]
    names = [path.with_suffix(".bin").name] if suffix == ".xml" else list(weights)
    for target in (path, *(path.parent / name for name in names)):
        for source in sources:
            if target.exists() and source.exists() and target.samefile(source):
                reason = f"writing {path} would overwrite {source}, which the model was read from"
                raise UsageError("GP203", reason, "write into another folder")


def stage_model(model: Model, folder: Path, file_name: str, limit: int | None = None) -> None:
    """Write a model into a staged folder, and read it back.

    Args:
        model: What to write.
        folder: A folder of `graphpass.storage.staging.staging`.
        file_name: Name of the ``.onnx`` or ``.xml`` file.
        limit: See `write_model`.

    Raises:
        WriteError: GP501, GP502 or GP503.
        OSError: The file system's words; ``staging`` makes a `WriteError` of it.
    """
    if model.dialect == "onnx":
        _stage_onnx(model, folder, file_name, limit)
    else:
        _stage_openvino(model, folder, file_name)
    try:
        written = load(folder / file_name)
    except GraphpassError as error:
        reason = error.message.replace(str(folder), "").lstrip("/")
        raise WriteError("GP502", f"{file_name} was written, but does not read back: {reason}") from error
    for kind, before, after in (("inputs", model.inputs, written.inputs), ("outputs", model.outputs, written.outputs)):
        if not _same(before, after):
            raise WriteError("GP502", f"{file_name} was written, but its {kind} read back as {after}, not as {before}")


def _stage_onnx(model: Model, folder: Path, file_name: str, limit: int | None) -> None:
    from graphpass.onnx_model import OnnxModel
    from graphpass.storage.onnx_files import PROTO_LIMIT, stage_onnx

    assert isinstance(model, OnnxModel)
    stage_onnx(model.proto, model.path, folder, file_name, limit=PROTO_LIMIT if limit is None else limit)


def _stage_openvino(model: Model, folder: Path, file_name: str) -> None:
    import openvino

    from graphpass.openvino_model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)
    model.stabilise_names()
    file = folder / file_name
    try:
        # Not save_model: that one compresses weights to f16 and edits the graph.
        openvino.serialize(model.ov_model, str(file), str(file.with_suffix(".bin")))
    except RuntimeError as error:
        hint = "is there room left on the disk?"
        raise WriteError("GP501", f"OpenVINO cannot write {file_name}: {' '.join(str(error).split())}", hint) from error


def _weights(model: Model) -> dict[str, Path]:
    """The weight files that a model was read from, by their name relative to its folder."""
    if model.path is None:
        return {}
    if model.dialect == "openvino":
        if model.path.suffix != ".xml":
            # Converted from ONNX: a .bin beside that is not its weights.
            return {}
        weights = model.path.with_suffix(".bin")
        return {weights.name: weights}
    from graphpass.onnx_model import OnnxModel
    from graphpass.onnx_tensors import external_files

    assert isinstance(model, OnnxModel)
    return external_files(model.proto, model.path)


def _same(before: tuple[Port, ...], after: tuple[Port, ...]) -> bool:
    return len(before) == len(after) and all(
        old.name == new.name and old.element_type == new.element_type and _same_shape(old.shape, new.shape)
        for old, new in zip(before, after, strict=True)
    )


def _same_shape(before: tuple[Dimension, ...] | None, after: tuple[Dimension, ...] | None) -> bool:
    """Whether two shapes agree; reading back infers shapes anew, and may know less or more."""
    if before is None or after is None:
        return True
    return len(before) == len(after) and all(
        old == new or old is None or new is None for old, new in zip(before, after, strict=True)
    )
