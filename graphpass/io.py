"""Find, load and save models of both dialects."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graphpass.dialects.openvino.frontend import LOWERED, lowering_hint
from graphpass.errors import GraphpassError, ReadError, UsageError, WriteError
from graphpass.ir.inputs import EMBEDDINGS, token_input
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect, Dimension, Port
from graphpass.progress import stage
from graphpass.storage.scratch_file import ScratchFile
from graphpass.storage.staging import staging
from graphpass.storage.weight_file import MappedWeights, WeightFile, check_unchanged

Weights = Literal["auto", "share", "copy", "shard"]
"""How weights are stored in a result; see `stage_model`."""

#: Models in the folder of a language model that the name of the folder never refers to.
_COMPANION_MODELS = frozenset({"openvino_tokenizer.xml", "openvino_detokenizer.xml"})

_CHECKPOINTS = frozenset({".safetensors", ".gguf", ".pt", ".pth"})

_EXPORT = "export the checkpoint first: optimum-cli export onnx, or optimum-cli export openvino"

#: Model ids of the Hugging Face hub, and their URLs, in which `Path` merges repeated slashes.
_HUB_ID = re.compile(
    r"(?:https?:/+(?:www\.)?(?:huggingface|hf)\.co/|hf:/+)?([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)", re.ASCII
)

#: Configurations of models, of which one is enough.
_CONFIGURATIONS = ("config.json", "genai_config.json")

_SUFFIXES: dict[Dialect, str] = {"onnx": ".onnx", "openvino": ".xml"}


def find_model(path: str | Path) -> Path:
    """Return the model file that ``path`` refers to.

    Args:
        path: A ``.onnx`` or ``.xml`` file, or a folder with one of them; see `model_folder`. Several, also in
            subfolders beside a configuration, are accepted if one is a language model that reads embeddings; see
            `find_language_model`.

    Raises:
        ReadError: GP101, the path does not exist; GP102, the file is neither ``.onnx`` nor ``.xml``; GP103, the folder
            has no model.
        UsageError: GP201, the folder has several models.
    """
    path = Path(path)
    try:
        return _found(path)
    except FileNotFoundError as error:
        raise ReadError("GP101", f"{path} does not exist", _hub_advice(path) or _did_you_mean(path)) from error
    except OSError as error:
        hint = "grant this user read access to it and its folders"
        raise ReadError("GP101", f"{path} cannot be read: {error.strerror}", hint) from error


def _found(path: Path) -> Path:
    path.stat()
    if path.is_file():
        if not _is_graph(path):
            raise ReadError("GP102", f"{path} is neither an .onnx nor an .xml file", _instead_of_file(path))
        return path
    if not path.is_dir():
        raise ReadError("GP102", f"{path} is neither a file nor a folder", "name an .onnx or .xml file")
    models = models_in(folder := model_folder(path))
    below = models_below(folder) if not models and _has_configuration(folder) else []
    if (main := find_language_model(below)) is not None:
        return main
    if not models:
        raise ReadError("GP103", f"{path} has no .onnx or .xml model", _instead_of_folder(path))
    if len(models) > 1 and (main := find_language_model(models)) is not None:
        return main
    if len(models) > 1:
        names = ", ".join(file.name for file in models)
        hint = f"name one of them, for example {models[0]}"
        raise UsageError("GP201", f"{folder} has several models: {names}", hint)
    return models[0]


def model_folder(path: Path) -> Path:
    """Return ``path``, or its only subfolder with models if the folder itself has none.

    Repositories of the Hugging Face hub for ONNX have a folder ``onnx`` beside configuration and tokenizer.
    """
    try:
        below = _folders_with_models(path) if path.is_dir() and not models_in(path) else []
    except OSError:  # `find_model` reports it
        below = []
    return below[0] if len(below) == 1 else path


def configuration_folder(model_file: Path) -> Path:
    """Return the folder of a model's configuration and tokenizer.

    This is the model's folder, or its parent if a configuration is only there, and no model is; see `model_folder`.
    """
    folder, above = model_file.parent, model_file.parent.parent
    is_above = _has_configuration(above) and not _has_configuration(folder)
    return above if is_above and not models_in(above) else folder


def _has_configuration(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _CONFIGURATIONS)


def parts_of(model_file: Path) -> tuple[Path, list[Path]]:
    """Return the folder of a model and of the models beside it, and their files.

    The models are in one folder, or each in a folder of its own in the folder of the configuration.
    """
    folder, above = model_file.parent, configuration_folder(model_file)
    beside = models_in(folder)
    return (folder, beside) if len(beside) > 1 or above == folder else (above, models_below(above))


def models_below(folder: Path) -> list[Path]:
    """Return the model files in the subfolders of ``folder``; see `models_in`."""
    return [file for child in _folders_with_models(folder) for file in models_in(child)]


def _folders_with_models(folder: Path) -> list[Path]:
    return [child for child in sorted(folder.iterdir()) if child.is_dir() and models_in(child)]


def find_language_model(files: Iterable[Path]) -> Path | None:
    """Return the language model among ``files`` whose embeddings the other models compute.

    This model is the only one with an embeddings input, and the only one with caches among those that read tokens or
    embeddings. A second model with caches would be independent, for example the same model in another precision.

    Args:
        files: Models of one folder.

    Returns:
        The model's file; ``None`` if there is none, or several, or if a model cannot be read.
    """
    from graphpass.analysis.caches.inventory import analyze_caches

    try:
        takers = [model for model in map(load, files) if token_input(model.graph) is not None]
    except ReadError:  # `load` reports it
        return None
    embedded = [model for model in takers if EMBEDDINGS in model.graph.parameters]
    if len(embedded) != 1 or [model for model in takers if model.analysis(analyze_caches).caches] != embedded:
        return None
    return embedded[0].path


def models_in(folder: Path) -> list[Path]:
    """Return the model files in ``folder`` by name, without subfolders and tokenizer models."""
    return sorted(
        file for file in folder.iterdir() if _is_graph(file) and file.name not in _COMPANION_MODELS and file.is_file()
    )


def _is_graph(file: Path) -> bool:
    return file.suffix.lower() in {".onnx", ".xml"}


def _hub_advice(path: Path) -> str:
    """Return the commands that export a model id of the hub; empty for other paths."""
    match = _HUB_ID.fullmatch(path.as_posix())
    if match is None or _is_graph(path) or path.parent.is_dir():
        return ""
    lines = (f"optimum-cli export {form} --model {match[1]} DIR" for form in ("openvino", "onnx"))
    return f"for a model id of the Hugging Face hub, export it first: {', or '.join(lines)}; then name DIR"


def _did_you_mean(path: Path) -> str:
    near: list[str] = []
    with contextlib.suppress(OSError):
        near = difflib.get_close_matches(path.name, sorted(file.name for file in path.parent.iterdir()), n=1)
    return f"did you mean {path.parent / near[0]}?" if near else "name an .onnx or .xml file, or a folder with one"


def _instead_of_file(file: Path) -> str:
    graph = next((graph for graph in (file.with_suffix(".xml"), file.with_suffix("")) if graph.is_file()), None)
    if graph is not None and _is_graph(graph):
        return f"name its graph file: {graph}"
    return _EXPORT if file.suffix.lower() in _CHECKPOINTS else "name the model file itself"


def _instead_of_folder(folder: Path) -> str:
    if below := _folders_with_models(folder):
        return f"name one of its folders with a model: {', '.join(map(str, below))}"
    if any(file.suffix.lower() in _CHECKPOINTS for file in folder.iterdir()):
        return _EXPORT
    return "name the model file, or its folder"


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
    file = find_model(path)
    if file.suffix.lower() == ".onnx":
        from graphpass.dialects.onnx.model import OnnxModel

        return OnnxModel.load(file)
    from graphpass.dialects.openvino.model import OpenVINOModel

    return OpenVINOModel.load(file)


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
