"""Find model files in folders, and the other models of a folder."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from graphpass.dialects.reading import read_file
from graphpass.errors import ReadError, UsageError
from graphpass.ir.inputs import EMBEDDINGS, token_input
from graphpass.ir.model import Model

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


def models_beside(model: Model) -> dict[Path, Model]:
    """Return the other models in the folder of `parts_of` by file, for `Model.analysis`.

    Raises:
        ReadError: GP104 to GP107, a file is damaged, or of unknown format.
    """
    files = () if model.path is None else parts_of(model.path)[1]
    return {file: read_file(file) for file in files if file != model.path}


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
        takers = [model for model in map(read_file, files) if token_input(model.graph) is not None]
    except ReadError:  # reported when that model is read
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
