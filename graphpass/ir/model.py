"""`Model`: one interface for ONNX and OpenVINO models."""

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
    """A model of one dialect, stored in its native object.

    Attributes:
        dialect: ``"onnx"`` or ``"openvino"``.
        path: The file that the model was read from; ``None`` for a model created in memory.
        edits: Number of edits since reading or cloning.
        weight_files: The files with its weights, in their state at reading.

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
        """Return the inputs that a caller feeds, in the model's order."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[Port, ...]:
        """Return the outputs that a caller receives, in the model's order."""

    @abstractmethod
    def clone(self) -> Self:
        """Return an editable copy, which may share weights."""

    @abstractmethod
    def excerpt(self, nodes: Iterable[Node]) -> tuple[Self, dict[int, int]]:
        """Return a copy of ``nodes``, which may share weights.

        Args:
            nodes: Nodes of `Model.graph` that are in no body.

        Returns:
            The copy, with inputs in place of values from other nodes; and a map from the index of each node to the
            index of its copy.
        """

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of operators, attributes, names, edges, types and small constants.

        The hash includes the type, the shape, and the first and last 64 bytes of constants over 1 KiB, so weights are
        not read.
        """

    @abstractmethod
    def validate(self) -> None:
        """Check that the native graph is well formed.

        Raises:
            UnsupportedError: GP310, the graph is invalid; the message has the checker's error.
        """

    @abstractmethod
    def read_note(self, key: str) -> str | None:
        """Return the metadata that graphpass stored under ``key``; ``None`` if absent."""

    @abstractmethod
    def write_note(self, key: str, text: str) -> None:
        """Store text in the model's metadata.

        Args:
            key: Name of the entry, without the prefix ``graphpass``; an earlier entry is replaced.
            text: Content of the entry.
        """

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """Return a user's declarations of caches.

        Raises:
            ReadError: GP109, their metadata is invalid.
        """
        return declarations_from(self.read_note("caches"))

    def declare(self, declarations: Iterable[Declaration]) -> None:
        """Declare caches that the dataflow does not determine; replace all earlier declarations.

        Analyses check the declarations and refuse those that the graph contradicts (GP219).
        """
        declared = tuple(declarations)
        if declared != self.declarations:
            self.write_note("caches", note_of(declared))
            self.mark_edited()

    @abstractmethod
    def build_graph(self, *, inline: bool = False) -> Graph:
        """Build a dialect-neutral view of the native graph; `Model.graph` caches it.

        Args:
            inline: Whether to inline the nodes of bodies as `graphpass.ir.bodies` describes. Otherwise an operator with
                bodies is one node.

        Returns:
            The view, with nodes in topological order.
        """

    @abstractmethod
    def rewriter(self) -> Rewriter:
        """Return a rewriter of the model; `Model.graph` is unchanged until `Rewriter.finish`."""

    @property
    def graph(self) -> Graph:
        """Return the dialect-neutral view, cached until the model is edited."""
        return self.analysis(type(self).build_graph)

    def analysis(self, compute: Callable[[Self], Analysis]) -> Analysis:
        """Return ``compute(self)``, cached until the model is edited.

        Raises:
            UnsupportedError: GP310, the analysis failed because the graph is malformed.
            GraphpassError: ``compute`` raises it.
        """
        if compute not in self._analyses:
            name = f"{compute.__module__}.{compute.__name__.strip('_')}".removeprefix("graphpass.")
            try:
                with timed("analysis", name):
                    self._analyses[compute] = compute(self)
            except GraphpassError:
                raise
            except Exception:
                self.validate()  # on a well-formed graph the failure is a bug of graphpass and is raised unchanged
                raise
        result: Analysis = self._analyses[compute]
        return result

    @property
    def edited(self) -> bool:
        """Return whether the model changed since it was read."""
        return self.edits > 0

    def mark_edited(self) -> None:
        """Record that the native graph changed, and discard cached analyses."""
        self.edits += 1
        self._analyses.clear()
