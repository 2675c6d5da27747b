"""`Model`: one interface over ONNX and OpenVINO models, and the functions that read and write them."""

from __future__ import annotations

import contextlib
import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from graphpass.errors import GraphpassError, ReadError, UsageError
from graphpass.ir.declaration import declarations_from, note_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from graphpass.io import Weights
    from graphpass.ir.declaration import Declaration
    from graphpass.ir.graph import Graph
    from graphpass.storage.weight_file import WeightFile

__all__ = ["Dialect", "Dimension", "Model", "Port", "find_model", "load", "save"]

Dialect = Literal["onnx", "openvino"]

Dimension = int | str | None
"""One dimension: its size, the name of a symbol, or ``None`` where nothing is known."""

Analysis = TypeVar("Analysis")

#: Models that stand beside a language model and are never meant by the folder they lie in.
_COMPANION_MODELS = frozenset({"openvino_tokenizer.xml", "openvino_detokenizer.xml"})

#: Endings of weights without a graph.
_CHECKPOINTS = frozenset({".safetensors", ".gguf", ".pt", ".pth"})

_EXPORT = "export the checkpoint first: optimum-cli export onnx, or optimum-cli export openvino"


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a model.

    Attributes:
        name: The name by which a runtime addresses it.
        shape: One entry a dimension; ``None`` where the rank is unknown.
        element_type: OpenVINO's short name: ``"f32"``, ``"i64"``, ``"boolean"`` ...
    """

    name: str
    shape: tuple[Dimension, ...] | None
    element_type: str


class Model(ABC):
    """A model of one dialect. The native object stays the truth and stays reachable.

    Attributes:
        dialect: ``"onnx"`` or ``"openvino"``.
        path: The file it was read from; ``None`` for a model made in memory.
        edited: Whether a pass changed it since it was read.
        weight_files: The files that its weights were read from, as they were then.
    """

    dialect: Dialect

    def __init__(self, path: Path | None) -> None:
        """Create a model read from ``path``."""
        self.path = path
        self.edited = False
        self.weight_files: tuple[WeightFile, ...] = ()
        self._analyses: dict[Callable[..., Any], Any] = {}

    @property
    @abstractmethod
    def inputs(self) -> tuple[Port, ...]:
        """The inputs a caller feeds, in the model's order."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[Port, ...]:
        """The outputs a caller gets, in the model's order."""

    @abstractmethod
    def clone(self) -> Self:
        """A copy whose graph can be edited without touching this one. Weights may be shared."""

    @abstractmethod
    def digest(self) -> str:
        """A hash of the structure: operators, attributes, names, edges, types, small constants.

        Constants of more than 1 KiB count with type, shape, first and last 64 bytes, so weights are not read.
        """

    @abstractmethod
    def validate(self) -> None:
        """Check that the native graph is well formed.

        Raises:
            UnsupportedError: GP310, with the checker's words.
        """

    @abstractmethod
    def read_note(self, key: str) -> str | None:
        """What graphpass noted in the model's metadata under ``key``; ``None`` where there is no such note."""

    @abstractmethod
    def write_note(self, key: str, text: str) -> None:
        """Note ``text`` in the model's metadata, which is saved with it."""

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """What a user said of its caches.

        Raises:
            ReadError: GP109, the note that keeps it is damaged.
        """
        return declarations_from(self.read_note("caches"))

    def declare(self, declarations: Iterable[Declaration]) -> None:
        """Say of carried tensors what the dataflow does not tell; replaces what was said before.

        An analysis checks what is said, and refuses what the graph contradicts (GP219).
        """
        self.write_note("caches", note_of(declarations))
        self.mark_edited()

    @abstractmethod
    def build_graph(self) -> Graph:
        """A new dialect-neutral view of the native graph; see `Model.graph` for the cached one."""

    @property
    def graph(self) -> Graph:
        """The dialect-neutral view, kept until the model is edited."""
        return self.analysis(_graph_of)

    def analysis(self, compute: Callable[[Self], Analysis]) -> Analysis:
        """The result of ``compute(self)``, kept until the model is edited.

        Raises:
            UnsupportedError: GP310, it failed because the graph is not well formed.
        """
        if compute not in self._analyses:
            try:
                self._analyses[compute] = compute(self)
            except GraphpassError:
                raise
            except Exception:
                self.validate()  # of a graph that is well formed the failure itself is told: it is our bug
                raise
        found: Analysis = self._analyses[compute]
        return found

    def mark_edited(self) -> None:
        """Say that the native graph changed: analyses are forgotten."""
        self.edited = True
        self._analyses.clear()


def _graph_of(model: Model) -> Graph:
    return model.build_graph()


def find_model(path: str | Path) -> Path:
    """The model file that ``path`` means.

    Args:
        path: A ``.onnx`` or ``.xml`` file, or a folder that holds one of them.

    Returns:
        The file.

    Raises:
        ReadError: GP101 nothing there; GP102 neither ``.onnx`` nor ``.xml``; GP103 a folder without a model.
        UsageError: GP201 a folder with several models.
    """
    path = Path(path)
    try:
        return _found(path)
    except FileNotFoundError as error:
        raise ReadError("GP101", f"{path} does not exist", _did_you_mean(path)) from error
    except OSError as error:
        hint = "let this user read it, and the folders in which it lies"
        raise ReadError("GP101", f"{path} cannot be looked at: {error.strerror}", hint) from error


def _found(path: Path) -> Path:
    path.stat()
    if path.is_file():
        if not _is_graph(path):
            raise ReadError("GP102", f"{path} is neither an .onnx nor an .xml file", _instead_of_file(path))
        return path
    if not path.is_dir():
        raise ReadError("GP102", f"{path} is neither a file nor a folder", "name an .onnx or .xml file")
    found = models_in(path)
    if not found:
        raise ReadError("GP103", f"{path} holds no .onnx or .xml model", _instead_of_folder(path))
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise UsageError(
            "GP201", f"{path} holds several models: {names}", "name one of them, for example " + str(found[0])
        )
    return found[0]


def models_in(folder: Path) -> list[Path]:
    """The model files directly in ``folder``, sorted by name; tokenizer models do not count."""
    return sorted(
        file for file in folder.iterdir() if _is_graph(file) and file.name not in _COMPANION_MODELS and file.is_file()
    )


def _is_graph(file: Path) -> bool:
    return file.suffix.lower() in {".onnx", ".xml"}


def _did_you_mean(path: Path) -> str:
    """What to do where there is no ``path``."""
    near: list[str] = []
    with contextlib.suppress(OSError):
        near = difflib.get_close_matches(path.name, sorted(file.name for file in path.parent.iterdir()), n=1)
    return (
        f"did you mean {path.parent / near[0]}?" if near else "name an .onnx or .xml file, or a folder that holds one"
    )


def _instead_of_file(file: Path) -> str:
    """What to do with a file that is no graph: to name the graph whose weights it holds, or to export a checkpoint."""
    graph = next((graph for graph in (file.with_suffix(".xml"), file.with_suffix("")) if graph.is_file()), None)
    if graph is not None and _is_graph(graph):
        return f"name the graph that reads it: {graph}"
    return _EXPORT if file.suffix.lower() in _CHECKPOINTS else "name the model file itself"


def _instead_of_folder(folder: Path) -> str:
    """What to do with a folder that holds no model: to name one below it, or to export a checkpoint."""
    below = [child for child in sorted(folder.iterdir()) if child.is_dir() and models_in(child)]
    if below:
        return f"name one of the folders in it that do: {', '.join(map(str, below))}"
    if any(file.suffix.lower() in _CHECKPOINTS for file in folder.iterdir()):
        return _EXPORT
    return "name the model file, or the folder in which it lies"


def load(path: str | Path) -> Model:
    """Read a model.

    Args:
        path: A ``.onnx`` or ``.xml`` file, or a folder that holds one of them.

    Returns:
        An `OnnxModel` or an `OpenVINOModel`. Weights are not read until something asks for their values.

    Raises:
        ReadError: The file is missing, damaged, or of no known format (GP101 to GP107).
        UsageError: GP201, a folder with several models.
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
        model: What to write.
        path: The ``.onnx`` or ``.xml`` file to write; weights go beside it.
        weights: How they get there; see `graphpass.io.stage_model`.

    Raises:
        ReadError: GP110, the weights changed since the model was read.
        UsageError: GP202 the suffix does not fit the model's dialect; GP203 the file is the model's own input; GP230
            the weights cannot be shared.
        WriteError: GP501, the file system's words; GP504, another process writes there.
    """
    from graphpass.io import write_model

    write_model(model, Path(path), weights=weights)
