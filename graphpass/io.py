"""Load and save models of both dialects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graphpass.dialects.openvino.frontend import LOWERED, lowering_hint
from graphpass.dialects.reading import read_file
from graphpass.errors import GraphpassError, UsageError, WriteError
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect, Dimension, Port
from graphpass.model_files import find_model
from graphpass.progress import stage
from graphpass.storage.scratch_file import ScratchFile
from graphpass.storage.staging import staging
from graphpass.storage.weight_file import MappedWeights, WeightFile, check_unchanged

Weights = Literal["auto", "share", "copy", "shard"]
"""How weights are stored in a result; see `stage_model`."""

_SUFFIXES: dict[Dialect, str] = {"onnx": ".onnx", "openvino": ".xml"}


def load(path: str | Path) -> Model:
    """Read a model as an `OnnxModel` or an `OpenVINOModel`.

    Weights are read when their values are first needed.

    Args:
        path: A ``.onnx`` or ``.xml`` file, or a folder with one of them.

    Returns:
        The model; ``Model.dialect`` is ``"onnx"`` or ``"openvino"``.

    Raises:
        ReadError: GP101 to GP107, the file is missing, damaged, or of unknown format.
        UsageError: GP201, a folder with several models.

    Examples:
        >>> import graphpass
        >>> model = graphpass.load("build/fixtures/llama/onnx")
        >>> model.dialect, [port.name for port in model.inputs][:2]
        ('onnx', ['input_ids', 'attention_mask'])
    """
    return read_file(find_model(path))


def save(model: Model, path: str | Path, weights: Weights = "auto") -> None:
    """Write a model atomically, with its weights unchanged.

    Args:
        model: The model to write.
        path: The ``.onnx`` or ``.xml`` file to write; weights are written to the same folder.
        weights: Storage of the weights; see `stage_model`.

    Raises:
        ReadError: GP110, the weights changed since the model was read.
        UsageError: GP202, the suffix does not match the model's dialect; GP203, the file belongs to the model's input;
            GP230, the weights cannot be shared.
        WriteError: GP501, the file system reports an error; GP504, another process writes the same files.

    Examples:
        >>> import graphpass
        >>> model = graphpass.load("build/fixtures/llama/onnx")
        >>> graphpass.save(model, "demo-output/copy/model.onnx")
        >>> graphpass.diff(model, "demo-output/copy").same
        True
    """
    write_model(model, Path(path), weights=weights)


@dataclass(frozen=True, slots=True)
class Written:
    """Storage of the weights of a written model.

    Attributes:
        shared: Files of the input that the result has hard links to.
        appended: Bytes of new constants that were appended.
        copies: Files of the result that equal a file of the input, by their path in the folder of the model.
    """

    shared: tuple[Path, ...] = ()
    appended: int = 0
    copies: tuple[tuple[str, WeightFile], ...] = ()


def write_model(model: Model, path: Path, limit: int | None = None, weights: Weights = "auto") -> Written:
    """Write a model atomically, and report its weights.

    Args:
        model: The model to write; its weights are copied unchanged.
        path: The ``.onnx`` file, or the ``.xml`` file, whose ``.bin`` file has the same name.
        limit: Size in bytes above which weights of an ONNX model are written to a data file; protobuf's limit by
            default.
        weights: See `stage_model`.

    Returns:
        The shared files, and the number of appended bytes.

    Raises:
        ReadError: GP110, the weights changed since the model was read.
        UsageError: GP202, the suffix does not match the model's dialect; GP203, the file belongs to the model's input;
            GP230, the weights cannot be shared.
        WriteError: GP501, the file system reports an error; GP502, the written file does not read back; GP503, the
            model is too large; GP504, another process writes the same files.
    """
    check_destination(model, path)
    with staging(path.parent) as folder:
        return stage_model(model, folder, path.name, limit, weights)


def check_destination(model: Model, path: Path) -> None:
    """Check that a model may be written to ``path``.

    Args:
        model: The model to write.
        path: The ``.onnx`` or ``.xml`` file to write.

    Raises:
        UsageError: GP202, the suffix does not match the dialect; GP203, a file to write belongs to the model's input.
    """
    check_suffix(model.dialect, path)
    sources = [*([model.path] if model.path is not None else []), *(file.path for file in model.weight_files)]
    for target in (path, *(path.parent / name for name in _weight_names(model, path))):
        for source in sources:
            if is_same_place(target, source):
                reason = f"writing {path} would overwrite {source}, which the model was read from"
                raise UsageError("GP203", reason, "write into another folder")


def check_suffix(dialect: Dialect, path: Path) -> None:
    """Check that the suffix of a file matches a dialect.

    Args:
        dialect: The dialect of the model to write.
        path: The file to write.

    Raises:
        UsageError: GP202, the suffix belongs to another dialect.
    """
    suffix = _SUFFIXES[dialect]
    if path.suffix.lower() != suffix:
        raise UsageError("GP202", f"{path} is not a name for a model in {dialect}", f"use a name that ends in {suffix}")


def is_same_place(target: Path, source: Path) -> bool:
    """Return whether writing ``target`` would replace ``source``, by any path.

    Another hard link to the same file is not the same place: writing replaces the link, and the file is unchanged.

    Args:
        target: The file to write.
        source: A file that was read.

    Returns:
        Whether both paths refer to one directory entry.
    """
    try:
        if not target.samefile(source):
            return False
    except OSError:  # one of the files is missing or not accessible
        return False
    target, source = target.resolve(), source.resolve()
    return target.name.casefold() == source.name.casefold() and target.parent.samefile(source.parent)


def stage_model(
    model: Model, folder: Path, file_name: str, limit: int | None = None, weights: Weights = "auto"
) -> Written:
    """Write a model into a staged folder, read it back, and report its weights.

    Weights in files are not loaded. ``weights`` sets how the result stores them:

    ===========  ============================================================================================
    ``"copy"``   a copy of the file, made by the kernel
    ``"auto"``   as ``"copy"``
    ``"share"``  a hard link to the file
    ``"shard"``  data files of limited size, ONNX only; see `graphpass.dialects.onnx.shards`
    ===========  ============================================================================================

    New constants are appended, also to a shared file, unless an earlier conversion already appended the same bytes. The
    input remains usable, but its file grows. Overwriting either of two hard links in place changes both. ``onnx.load``
    rejects external data with several hard links, so it cannot read an ONNX model that shares its data; ONNX Runtime
    and OpenVINO can.

    Args:
        model: The model to write.
        folder: A folder of `graphpass.storage.staging.staging`.
        file_name: Name of the ``.onnx`` or ``.xml`` file.
        limit: See `write_model`.
        weights: One of the values above.

    Returns:
        The shared files, and the number of appended bytes.

    Raises:
        ReadError: GP110, the weights changed since the model was read.
        UsageError: GP230, the weights cannot be shared.
        WriteError: GP501, GP502 or GP503, as `write_model`.
        OSError: The file system reports an error; ``staging`` converts it to a `WriteError`.
    """
    share = weights == "share"
    with stage(f"writing {file_name}"):
        if weights == "shard":
            from graphpass.dialects.onnx.model import OnnxModel
            from graphpass.dialects.onnx.shards import stage_sharded

            assert isinstance(model, OnnxModel)
            check_unchanged(model.weight_files)
            stage_sharded(model, folder, file_name)
            done = Written()
        elif model.dialect == "onnx":
            done = _stage_onnx(model, folder, file_name, limit, share=share)
        else:
            done = _stage_openvino(model, folder, file_name, share=share)
        _check_written(model, folder, file_name)
    return done


def _check_written(model: Model, folder: Path, file_name: str) -> None:
    try:
        if model.dialect == "onnx":
            written = load(folder / file_name)
        else:
            from graphpass.dialects.openvino.model import OpenVINOModel

            written = OpenVINOModel.reopen(folder / file_name)
    except GraphpassError as error:
        reason = error.message.replace(str(folder), "").lstrip("/")
        hint = lowering_hint(LOWERED.intersection(node.op for node in model.graph.nodes))
        raise WriteError("GP502", f"{file_name} was written, but does not read back: {reason}", hint) from error
    for kind, before, after in (("inputs", model.inputs, written.inputs), ("outputs", model.outputs, written.outputs)):
        if not _same(before, after):
            raise WriteError(
                "GP502",
                f"{file_name} was written, but its {kind} differ when read back: expected {before}, got {after}",
            )
    if _structure(model) != _structure(written):
        raise WriteError("GP502", f"{file_name} was written, but its graph differs when read back")


def _structure(model: Model) -> str:
    """Return a hash of everything that writing must preserve; see `Model.digest`."""
    if model.dialect == "onnx":
        return model.digest()
    from graphpass.dialects.openvino.digest import digest
    from graphpass.dialects.openvino.model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)  # `stabilise_names` ran
    return digest(model.ov_model, MappedWeights(file for file in model.weight_files if file.unchanged), shapes=False)


def _stage_onnx(model: Model, folder: Path, file_name: str, limit: int | None, *, share: bool) -> Written:
    from graphpass.dialects.onnx.files import PROTO_LIMIT, stage_onnx
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.tensors import external_files

    assert isinstance(model, OnnxModel)
    check_unchanged(model.weight_files)
    files = external_files(model.proto, model.path)
    if share and not files:
        reason = "weights can be shared only if they are in a separate file; these are in the graph file"
        raise UsageError("GP230", reason, "write with --weights copy")
    limit = PROTO_LIMIT if limit is None else limit
    stage_onnx(model.proto, model.path, folder, file_name, link=share, limit=limit)
    check_unchanged(model.weight_files)
    if not share:
        read = {file.path: file for file in model.weight_files}
        locations = {location: read.get(file.resolve()) for location, file in files.items()}
        return Written(copies=tuple((name, file) for name, file in locations.items() if file is not None))
    # Weights that a pass created do not belong to the input, and may be on another file system.
    shared = {location: file for location, file in files.items() if ScratchFile.find(location) is None}
    for location, file in shared.items():
        if not (folder / location).samefile(file):
            reason = f"{file} cannot be shared: the file system did not create a hard link to it"
            raise UsageError("GP230", reason, "write on the same file system, or with --weights copy")
    return Written(tuple(shared.values()))


def _stage_openvino(model: Model, folder: Path, file_name: str, *, share: bool) -> Written:
    from graphpass.dialects.openvino.files import stage_openvino
    from graphpass.dialects.openvino.model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)
    model.stabilise_names()
    file = stage_openvino(model.ov_model, model.path, model.weight_files, folder, file_name, share=share)
    if not share:
        copied = file.copied
        copies = () if copied is None else ((Path(file_name).with_suffix(".bin").name, copied),)
        return Written(appended=file.appended, copies=copies)
    if file.appended:
        # This write changed the shared file.
        model.weight_files = tuple(WeightFile.of(source.path) for source in model.weight_files)
    return Written(tuple(source.path for source in file.sources), file.appended)


def files_to_copy(model: Model) -> tuple[WeightFile, ...]:
    """Return the weight files that `write_model` copies whole, and does not share or rewrite."""
    if model.dialect == "openvino":
        return model.weight_files if len(model.weight_files) == 1 else ()
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.tensors import external_files

    assert isinstance(model, OnnxModel)
    files = {file.resolve() for file in external_files(model.proto, model.path).values()}
    return tuple(file for file in model.weight_files if file.path in files)


def _weight_names(model: Model, path: Path) -> list[str]:
    if model.dialect == "openvino":
        return [path.with_suffix(".bin").name]
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.tensors import external_files

    assert isinstance(model, OnnxModel)
    return list(external_files(model.proto, model.path))


def _same(before: tuple[Port, ...], after: tuple[Port, ...]) -> bool:
    return len(before) == len(after) and all(
        old.name == new.name and old.element_type == new.element_type and _same_shape(old.shape, new.shape)
        for old, new in zip(before, after, strict=True)
    )


def _same_shape(before: tuple[Dimension, ...] | None, after: tuple[Dimension, ...] | None) -> bool:
    if before is None or after is None:
        return True
    return len(before) == len(after) and all(
        old == new or old is None or new is None for old, new in zip(before, after, strict=True)
    )
