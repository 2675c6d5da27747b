"""`OpenVINOModel`: a model stored as an `openvino.Model`."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from pathlib import Path

import openvino

from graphpass.dialects.openvino import names as openvino_names
from graphpass.dialects.openvino.digest import digest
from graphpass.dialects.openvino.excerpt import counterparts, excerpt_of
from graphpass.dialects.openvino.names import all_ops
from graphpass.dialects.openvino.ports import port_name, shape_of
from graphpass.dialects.openvino.rewriter import OpenVINORewriter
from graphpass.dialects.openvino.xml import check_ir, openvino_words
from graphpass.errors import ReadError, UnsupportedError
from graphpass.ir.cache import TRIM_NOTE
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.types import Port
from graphpass.storage.weight_file import MappedWeights, WeightFile, check_unchanged


def check_trim(model: Model, taker: str) -> None:
    """Check that a model is correct on more than one plugin version.

    Args:
        model: A model of either dialect.
        taker: The device or target that gets the model, named in the message: ``device CPU``.

    Raises:
        UnsupportedError: GP367, the model trims its caches in the form of the GPU plugin of 2026.4.1.
    """
    if model.read_note(TRIM_NOTE) is not None:
        raise UnsupportedError(
            "GP367",
            f"{taker} does not support a model that trims its caches from position 1, for the GPU plugin of OpenVINO "
            "2026.4.1: other runtimes drop the first position of such caches",
            "convert it with trim=slice, or use that plugin: verify --device GPU",
        )


class OpenVINOModel(Model):
    """An OpenVINO model; weights stay in the memory-mapped file.

    Attributes:
        ov_model: The native model. Code that edits it calls `mark_edited`; the pass manager does this for passes.
        fixed_names: Node names to keep although they have the form of names that OpenVINO generates.
    """

    dialect = "openvino"

    def __init__(
        self, ov_model: openvino.Model, path: Path | None = None, fixed_names: Collection[str] = frozenset()
    ) -> None:
        super().__init__(path)
        self.ov_model = ov_model
        self.fixed_names = frozenset(fixed_names)
        names = ((op.get_friendly_name(), op) for op in all_ops(ov_model)) if fixed_names else ()
        generated = ((name, op.get_name()) for name, op in names if name[-1:].isdecimal())
        self._fixed_nodes = frozenset(own for name, own in generated if name == own and name in self.fixed_names)

    @classmethod
    def load(cls, path: Path) -> OpenVINOModel:
        """Read an IR: ``path`` and its ``.bin`` file.

        Returns:
            The model, with all of its names fixed.

        Raises:
            ReadError: GP106, the ``.xml`` file is damaged or not an IR; GP107, the ``.bin`` file is missing or too
                short; GP110, a file changed while it was read.
        """
        graph = WeightFile.of(path)
        check_ir(path)
        model = cls.reopen(path)
        check_unchanged((graph, *model.weight_files))
        names = {op.get_friendly_name() for op in all_ops(model.ov_model)}
        named = cls(model.ov_model, path, names | {model.ov_model.get_friendly_name()})
        named.weight_files = model.weight_files
        return named

    @classmethod
    def reopen(cls, path: Path) -> OpenVINOModel:
        """Read an IR that graphpass wrote for comparison only; generated names are not detected.

        OpenVINO checks that all constants are within the ``.bin`` file.

        Returns:
            The model, without fixed names.

        Raises:
            ReadError: GP106, OpenVINO cannot read the file.
        """
        weights = path.with_suffix(".bin")
        files = (WeightFile.of(weights),) if weights.is_file() else ()
        try:
            ov_model = _core().read_model(path)
        except RuntimeError as error:
            hint = "export the model again; operators of an extension are not supported"
            raise ReadError("GP106", f"{path} is damaged or not supported: {openvino_words(error)}", hint) from error
        if not (ov_model.get_results() or ov_model.get_sinks() or ov_model.get_parameters()):
            raise ReadError("GP106", f"{path} is an IR without outputs", "export the model again")
        model = cls(ov_model, path)
        model.weight_files = files
        return model

    @property
    def inputs(self) -> tuple[Port, ...]:
        """See `Model.inputs`."""
        return tuple(_port(port) for port in self.ov_model.inputs)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """See `Model.outputs`."""
        return tuple(_port(port) for port in self.ov_model.outputs)

    def clone(self) -> OpenVINOModel:
        """Return a copy, as `Model.clone`; constants share memory."""
        # In a clone all names are explicit, so generated names must be replaced before.
        self.stabilise_names()
        copy = OpenVINOModel(self.ov_model.clone(), self.path, self.fixed_names)
        copy.edits = self.edits
        copy.weight_files = self.weight_files
        return copy

    def excerpt(self, nodes: Iterable[Node]) -> tuple[OpenVINOModel, dict[int, int]]:
        """Return an excerpt, as `Model.excerpt`; constants share memory."""
        self.stabilise_names()
        kept = tuple(nodes)
        copy = OpenVINOModel(excerpt_of(self.ov_model, kept), self.path, self.fixed_names)
        copy.edits = self.edits + 1
        copy.weight_files = self.weight_files
        return copy, counterparts(self.graph, copy.graph, kept)

    def digest(self, *, shapes: bool = True) -> str:
        """Return a hash of the structure; see `Model.digest`.

        ``shapes`` includes inferred shapes, which may differ after the model is read again.
        """
        self.stabilise_names()
        return digest(self.ov_model, MappedWeights(file for file in self.weight_files if file.unchanged), shapes=shapes)

    def stabilise_names(self) -> None:
        """Replace generated node names by names that depend on the graph alone; see `stabilise_names`."""
        openvino_names.stabilise_names(self.ov_model, self.fixed_names, self._fixed_nodes)

    def validate(self) -> None:
        """Infer types and shapes again with OpenVINO's checks.

        Raises:
            UnsupportedError: GP310, a check fails; the message has its error.
        """
        try:
            self.ov_model.validate_nodes_and_infer_types()
        except RuntimeError as error:
            called = self.path or self.ov_model.get_friendly_name()
            raise UnsupportedError("GP310", f"{called} is not a valid model: {openvino_words(error)}") from error

    def read_note(self, key: str) -> str | None:
        """Return a note, as `Model.read_note`; notes are in the rt_info."""
        path = ["graphpass", key]
        return self.ov_model.get_rt_info(path).astype(str) if self.ov_model.has_rt_info(path) else None

    def write_note(self, key: str, text: str) -> None:
        self.ov_model.set_rt_info(text, ["graphpass", key])

    def drop_note(self, key: str) -> None:
        """Remove the metadata under ``key``."""
        if self.read_note(key) is None:
            return
        notes = self.ov_model.get_rt_info(["graphpass"]).value
        del self.ov_model.rt_info["graphpass"]
        for other in notes.keys() - {key}:
            self.write_note(other, notes[other])

    def build_graph(self, *, inline: bool = False) -> Graph:
        from graphpass.dialects.openvino.graph import build

        return build(self.ov_model, inline=inline)

    def rewriter(self) -> OpenVINORewriter:
        from graphpass.dialects.openvino.rewriter import OpenVINORewriter

        return OpenVINORewriter(self.ov_model, self.graph, self.mark_edited)


def _port(port: openvino.Output) -> Port:
    shape = port.get_partial_shape()
    return Port(port_name(port), shape_of(shape), port.get_element_type().to_string())


@functools.cache
def _core() -> openvino.Core:
    return openvino.Core()
