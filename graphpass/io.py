"""Find, load and save models: the one module that knows both dialects."""

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
"""Ways of weights to a result; see `stage_model`."""

#: Models that stand beside a language model; the name of a folder never means them.
_COMPANION_MODELS = frozenset({"openvino_tokenizer.xml", "openvino_detokenizer.xml"})

_CHECKPOINTS = frozenset({".safetensors", ".gguf", ".pt", ".pth"})

_EXPORT = "export the checkpoint first: optimum-cli export onnx, or optimum-cli export openvino"

#: Model ids of the Hugging Face hub, and their addresses, of which `Path` joins the slashes.
_HUB_ID = re.compile(
    r"(?:https?:/+(?:www\.)?(?:huggingface|hf)\.co/|hf:/+)?([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)", re.ASCII
)

_SUFFIXES: dict[Dialect, str] = {"onnx": ".onnx", "openvino": ".xml"}


def find_model(path: str | Path) -> Path:
    """Return the model file that ``path`` means.

    Args:
        path: A ``.onnx`` or ``.xml`` file, or a folder that holds one of them, or several with one language model
            that is fed embeddings; see `find_language_model`.

    Raises:
        ReadError: GP101 nothing there; GP102 neither ``.onnx`` nor ``.xml``; GP103 a folder without a model.
        UsageError: GP201 a folder with several models.
    """
    path = Path(path)
    try:
        return _found(path)
    except FileNotFoundError as error:
        raise ReadError("GP101", f"{path} does not exist", _hub_advice(path) or _did_you_mean(path)) from error
    except OSError as error:
        hint = "let this user read it, and the folders in which it lies"
        raise ReadError("GP101", f"{path} cannot be read: {error.strerror}", hint) from error


def _found(path: Path) -> Path:
    path.stat()
    if path.is_file():
        if not _is_graph(path):
            raise ReadError("GP102", f"{path} is neither an .onnx nor an .xml file", _instead_of_file(path))
        return path
    if not path.is_dir():
        raise ReadError("GP102", f"{path} is neither a file nor a folder", "name an .onnx or .xml file")
    models = models_in(path)
    if not models:
        raise ReadError("GP103", f"{path} has no .onnx or .xml model", _instead_of_folder(path))
    if len(models) > 1 and (main := find_language_model(models)) is not None:
        return main
    if len(models) > 1:
        names = ", ".join(file.name for file in models)
        hint = f"name one of them, for example {models[0]}"
        raise UsageError("GP201", f"{path} has several models: {names}", hint)
    return models[0]


def find_language_model(files: Iterable[Path]) -> Path | None:
    """Return the one of several models that the others make embeddings for.

    It is the only one that takes embeddings, and the only one with caches that takes tokens in any form. Another would
    be a model of its own, such as the same one in another precision.

    Args:
        files: Models of one folder.

    Returns:
        Its file; ``None`` if there is none, or several, or if a model cannot be read.
    """
    from graphpass.analysis.caches.inventory import analyze_caches

    try:
        takers = [model for model in map(load, files) if token_input(model.graph) is not None]
    except ReadError:  # said once the file is named
        return None
    embedded = [model for model in takers if EMBEDDINGS in model.graph.parameters]
    if len(embedded) != 1 or [model for model in takers if model.analysis(analyze_caches).caches] != embedded:
        return None
    return embedded[0].path


def models_in(folder: Path) -> list[Path]:
    """Return the model files directly in ``folder``, sorted by name, without tokenizer models."""
    return sorted(
        file for file in folder.iterdir() if _is_graph(file) and file.name not in _COMPANION_MODELS and file.is_file()
    )


def _is_graph(file: Path) -> bool:
    return file.suffix.lower() in {".onnx", ".xml"}


def _hub_advice(path: Path) -> str:
    """Return commands that export a model id of the hub; empty for other paths."""
    match = _HUB_ID.fullmatch(path.as_posix())
    if match is None or _is_graph(path) or path.parent.is_dir():
        return ""
    lines = (f"optimum-cli export {form} --model {match[1]} DIR" for form in ("openvino", "onnx"))
    return f"for a model id of the Hugging Face hub, export it first: {', or '.join(lines)}; then name DIR"


def _did_you_mean(path: Path) -> str:
    near: list[str] = []
    with contextlib.suppress(OSError):
        near = difflib.get_close_matches(path.name, sorted(file.name for file in path.parent.iterdir()), n=1)
    return (
        f"did you mean {path.parent / near[0]}?" if near else "name an .onnx or .xml file, or a folder that holds one"
    )


def _instead_of_file(file: Path) -> str:
    graph = next((graph for graph in (file.with_suffix(".xml"), file.with_suffix("")) if graph.is_file()), None)
    if graph is not None and _is_graph(graph):
        return f"name the graph that reads it: {graph}"
    return _EXPORT if file.suffix.lower() in _CHECKPOINTS else "name the model file itself"


def _instead_of_folder(folder: Path) -> str:
    below = [child for child in sorted(folder.iterdir()) if child.is_dir() and models_in(child)]
    if below:
        return f"name one of the folders in it that do: {', '.join(map(str, below))}"
    if any(file.suffix.lower() in _CHECKPOINTS for file in folder.iterdir()):
        return _EXPORT
    return "name the model file, or the folder in which it lies"


def load(path: str | Path) -> Model:
    """Read a model as an `OnnxModel` or an `OpenVINOModel`.

    Weights are read when their values are first needed.

    Args:
        path: A ``.onnx`` or ``.xml`` file, or a folder that holds one of them.

    Returns:
        The model; ``Model.dialect`` is ``"onnx"`` or ``"openvino"``.

    Raises:
        ReadError: The file is missing, damaged, or of no known format (GP101 to GP107).
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
    """Write a model, weights untouched, all files or none.

    Args:
        model: The model to write.
        path: The ``.onnx`` or ``.xml`` file to write; weights go beside it.
        weights: Their way there; see `stage_model`.

    Raises:
        ReadError: GP110, the weights changed since the model was read.
        UsageError: GP202 the suffix does not fit the model's dialect; GP203 the file is the model's own input; GP230
            the weights cannot be shared.
        WriteError: GP501, the file system's error; GP504, another process writes there.

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
    """Reports on the weights of a written model.

    Attributes:
        shared: Files of the input to which the result has hard links.
        appended: Bytes of new constants that were appended.
    """

    shared: tuple[Path, ...] = ()
    appended: int = 0


def write_model(model: Model, path: Path, limit: int | None = None, weights: Weights = "auto") -> Written:
    """Write a model, all files or none, and report on its weights.

    Args:
        model: The model to write; its weights are copied unchanged.
        path: The ``.onnx`` file, or the ``.xml`` file beside which the ``.bin`` file goes.
        limit: Size in bytes above which an ONNX model's weights get a file of their own; protobuf's by default.
        weights: See `stage_model`.

    Returns:
        The way of the weights, and the bytes appended.

    Raises:
        ReadError: GP110, the weights changed since the model was read.
        UsageError: GP202 the suffix does not fit; GP203 it would overwrite the model's own input; GP230 the weights
            cannot be shared.
        WriteError: GP501 the file system's error; GP502 the written file does not read back; GP503 too large; GP504
            another process writes there.
    """
    check_destination(model, path)
    with staging(path.parent) as folder:
        return stage_model(model, folder, path.name, limit, weights)


def check_destination(model: Model, path: Path) -> None:
    """Check that a model may be written to ``path``.

    Raises:
        UsageError: GP202 the suffix does not fit the dialect; GP203 a file to be written is one of the model's input.
    """
    check_suffix(model.dialect, path)
    sources = [*([model.path] if model.path is not None else []), *(file.path for file in model.weight_files)]
    for target in (path, *(path.parent / name for name in _weight_names(model, path))):
        for source in sources:
            if is_same_place(target, source):
                reason = f"writing {path} would overwrite {source}, which the model was read from"
                raise UsageError("GP203", reason, "write into another folder")


def check_suffix(dialect: Dialect, path: Path) -> None:
    """Check that a file's suffix fits a dialect.

    Raises:
        UsageError: GP202, the suffix is of another dialect.
    """
    suffix = _SUFFIXES[dialect]
    if path.suffix.lower() != suffix:
        raise UsageError("GP202", f"{path} is not a name for a model in {dialect}", f"use a name that ends in {suffix}")


def is_same_place(target: Path, source: Path) -> bool:
    """Return whether writing ``target`` would replace ``source``, under any name.

    Another hard link to the same file is another place: the name is replaced, and the file stays.
    """
    try:
        if not target.samefile(source):
            return False
    except OSError:  # one is missing, or cannot be looked at, let alone written
        return False
    target, source = target.resolve(), source.resolve()
    return target.name.casefold() == source.name.casefold() and target.parent.samefile(source.parent)


def stage_model(
    model: Model, folder: Path, file_name: str, limit: int | None = None, weights: Weights = "auto"
) -> Written:
    """Write a model into a staged folder, read it back, and report on its weights.

    Weights that lie in files already are never read: the result refers to them in a copy of the file that the kernel
    makes (``"copy"``, ``"auto"``), or in the file itself, under a second name (``"share"``: a hard link). New
    constants are appended, to a shared file, too, unless the same work left them there before: the input stays as
    usable as before, but longer; and overwriting one of the two in place overwrites both. ``onnx.load`` refuses
    external data that has a second hard link (ONNX Runtime and OpenVINO take it), so it cannot read an ONNX model that
    shares its data.

    Args:
        model: The model to write.
        folder: A folder of `graphpass.storage.staging.staging`.
        file_name: Name of the ``.onnx`` or ``.xml`` file.
        limit: See `write_model`.
        weights: ``"copy"``, ``"share"`` or ``"auto"``; ``"shard"`` for data files of limited size, see
            `graphpass.dialects.onnx.shards`.

    Returns:
        The way of the weights, and the bytes appended.

    Raises:
        ReadError: GP110, the weights changed since the model was read.
        UsageError: GP230, the weights cannot be shared.
        WriteError: GP501, GP502 or GP503.
        OSError: The file system's error; ``staging`` turns it into a `WriteError`.
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
            raise WriteError("GP502", f"{file_name} was written, but its {kind} read back as {after}, not as {before}")
    if _structure(model) != _structure(written):
        raise WriteError("GP502", f"{file_name} was written, but reads back as another graph")


def _structure(model: Model) -> str:
    """Return a hash of all that writing must keep; see `Model.digest`."""
    if model.dialect == "onnx":
        return model.digest()
    from graphpass.dialects.openvino.digest import digest
    from graphpass.dialects.openvino.model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)  # its names are settled
    return digest(model.ov_model, MappedWeights(file for file in model.weight_files if file.unchanged), shapes=False)


def _stage_onnx(model: Model, folder: Path, file_name: str, limit: int | None, *, share: bool) -> Written:
    from graphpass.dialects.onnx.files import PROTO_LIMIT, stage_onnx
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.tensors import external_files

    assert isinstance(model, OnnxModel)
    check_unchanged(model.weight_files)
    files = external_files(model.proto, model.path)
    if share and not files:
        reason = "weights can be shared where they lie in a file of their own; these lie in the graph's"
        raise UsageError("GP230", reason, "write with --weights copy")
    limit = PROTO_LIMIT if limit is None else limit
    stage_onnx(model.proto, model.path, folder, file_name, link=share, limit=limit)
    check_unchanged(model.weight_files)
    if not share:
        return Written()
    # Weights that a pass made are not the input's; they may lie on another file system.
    shared = {location: file for location, file in files.items() if ScratchFile.find(location) is None}
    for location, file in shared.items():
        if not (folder / location).samefile(file):
            reason = f"{file} cannot be shared: the file system makes no hard link from there to the result"
            raise UsageError("GP230", reason, "write on the same file system, or with --weights copy")
    return Written(tuple(shared.values()))


def _stage_openvino(model: Model, folder: Path, file_name: str, *, share: bool) -> Written:
    from graphpass.dialects.openvino.files import stage_openvino
    from graphpass.dialects.openvino.model import OpenVINOModel

    assert isinstance(model, OpenVINOModel)
    model.stabilise_names()
    file = stage_openvino(model.ov_model, model.path, model.weight_files, folder, file_name, share=share)
    if not share:
        return Written(appended=file.appended)
    if file.appended:
        # The change of the shared file is this one's own.
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
