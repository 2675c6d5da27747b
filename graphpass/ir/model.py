"""`Model`: one interface over ONNX and OpenVINO models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Self

from graphpass.errors import GraphpassError
from graphpass.ir.declaration import Declaration, declarations_from, note_of
from graphpass.ir.graph import Graph, Node
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.types import Dialect, Port
from graphpass.progress import timed
from graphpass.storage.weight_file import WeightFile

Analysis = TypeVar("Analysis")


class Model(ABC):
    """A model of one dialect; its native object is authoritative.

    Attributes:
        dialect: ``"onnx"`` or ``"openvino"``.
        path: The file it was read from; ``None`` for a model made in memory.
        edits: Number of edits since it was read or cloned.
        weight_files: The files of its weights, as they were when read.

    Examples:
        >>> import graphpass
        >>> model = graphpass.load("build/fixtures/llama/onnx")
        >>> [node.op for node in model.graph.of_op("Softmax")]
        ['Softmax', 'Softmax']
    """

    dialect: Dialect

    def __init__(self, path: Path | None) -> None:
        """Create a model read from ``path``."""
        self.path = path
        self.edits = 0
        self.weight_files: tuple[WeightFile, ...] = ()
        self._analyses: dict[Callable[..., Any], Any] = {}

    @property
    @abstractmethod
    def inputs(self) -> tuple[Port, ...]:
        """Inputs that a caller feeds, in the model's order."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[Port, ...]:
        """Outputs that a caller gets, in the model's order."""

    @abstractmethod
    def clone(self) -> Self:
        """Copy the model for edits; weights may be shared."""

    @abstractmethod
    def excerpt(self, nodes: Iterable[Node]) -> tuple[Self, dict[int, int]]:
        """Copy ``nodes``; weights may be shared.

        Args:
            nodes: Nodes of `Model.graph`, outside of bodies.

        Returns:
            The copy, in which inputs stand for values that left-out nodes make; and its nodes by those that they are
            copied from.
        """

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of the structure: operators, attributes, names, edges, types, small constants.

        Constants of more than 1 KiB count with type, shape, first and last 64 bytes, so weights are not read.
        """

    @abstractmethod
    def validate(self) -> None:
        """Check that the native graph is well formed; raise the checker's words as GP310."""

    @abstractmethod
    def read_note(self, key: str) -> str | None:
        """Return graphpass's note in the model's metadata under ``key``; ``None`` if there is none."""

    @abstractmethod
    def write_note(self, key: str, text: str) -> None:
        """Note ``text`` in the model's metadata, which is saved with it."""

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """Return a user's declarations of its caches; raise GP109 on a damaged note."""
        return declarations_from(self.read_note("caches"))

    def declare(self, declarations: Iterable[Declaration]) -> None:
        """Declare carried tensors for what the dataflow does not show; replace all earlier declarations.

        Analyses check them, and refuse those that the graph contradicts (GP219).
        """
        declared = tuple(declarations)
        if declared != self.declarations:
            self.write_note("caches", note_of(declared))
            self.mark_edited()

    @abstractmethod
    def build_graph(self, *, inline: bool = False) -> Graph:
        """Build a dialect-neutral view of the native graph; `Model.graph` is the cached one.

        Args:
            inline: Whether the nodes in bodies stand beside the others, as `graphpass.ir.bodies` describes; otherwise a
                node with bodies is one node.
        """

    @abstractmethod
    def rewriter(self) -> Rewriter:
        """Start to edit the model; `Model.graph` stays unchanged until `Rewriter.finish`."""

    @property
    def graph(self) -> Graph:
        """Dialect-neutral view, kept until the model is edited."""
        return self.analysis(type(self).build_graph)

    def analysis(self, compute: Callable[[Self], Analysis]) -> Analysis:
        """Return ``compute(self)``, kept until the model is edited.

        Raises:
            UnsupportedError: GP310, it failed because the graph is not well formed.
        """
        if compute not in self._analyses:
            name = f"{compute.__module__}.{compute.__name__.strip('_')}".removeprefix("graphpass.")
            try:
                with timed("analysis", name):
                    self._analyses[compute] = compute(self)
            except GraphpassError:
                raise
            except Exception:
                self.validate()  # the failure on a well-formed graph is our bug, and is raised itself
                raise
        result: Analysis = self._analyses[compute]
        return result

    @property
    def edited(self) -> bool:
        """Return whether the model changed since it was read."""
        return self.edits > 0

    def mark_edited(self) -> None:
        """Note that the native graph changed: analyses are forgotten."""
        self.edits += 1
        self._analyses.clear()
