"""`OnnxModel`: a model stored as an `onnx.ModelProto`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from graphpass.dialects.onnx.body_ports import misfit_in
from graphpass.dialects.onnx.files import PROTO_LIMIT, stage_onnx
from graphpass.dialects.onnx.limits import check_limits
from graphpass.dialects.onnx.repairs import repair_shapes
from graphpass.dialects.onnx.tensors import (
    SMALL,
    check_tensor,
    element_type,
    external_files,
    graphs,
    is_external,
    nbytes,
    rebuilt,
    sample,
    shape_of,
    tensors,
)
from graphpass.dialects.onnx.walk import ONNX_DOMAINS, opset_of
from graphpass.errors import ReadError, UnsupportedError
from graphpass.ir.model import Model
from graphpass.ir.types import Port
from graphpass.storage.scratch_file import ScratchFile
from graphpass.storage.scratch_folder import scratch_folder
from graphpass.storage.weight_file import WeightFile, check_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import onnx_graphsurgeon as gs

    from graphpass.dialects.onnx.rewriter import OnnxRewriter
    from graphpass.ir.graph import Graph, Node


#: Operators that ONNX Runtime defines in ONNX's domain although ONNX lacks them, at all or in early opsets.
_ONNX_RUNTIME_OPERATORS = frozenset({"SimplifiedLayerNormalization", "LayerNormalization"})


class OnnxModel(Model):
    """An ONNX model; external data stays on disk, and ``proto`` refers to it.

    Attributes:
        proto: The native model. Code that edits it calls `mark_edited`; the pass manager does this for passes.
        scratch: Files of weights that passes created, kept while this model refers to them.
    """

    dialect = "onnx"

    def __init__(self, proto: onnx.ModelProto, path: Path | None = None) -> None:
        super().__init__(path)
        self.proto = proto
        self.scratch: tuple[ScratchFile, ...] = ()

    @classmethod
    def load(cls, path: Path) -> OnnxModel:
        """Read an ``.onnx`` file; only the size of external data is checked.

        Returns:
            The model, with one `WeightFile` for each file of external data.

        Raises:
            ReadError: GP104, the file is not an ONNX model; GP105, external data is missing, too short or outside the
                folder; GP110, the file changed while it was read; GP112, a tensor's data does not match its shape;
                GP119, functions or versions of operator sets exceed limits.
        """
        graph = WeightFile.of(path)
        proto = parse_onnx(path)
        check_limits(proto, path)
        for tensor in tensors(proto):
            check_tensor(tensor)
        repaired = repair_shapes(proto)
        model = cls(proto, path)
        if repaired:
            model.mark_edited()  # runtimes must read the repaired model, not the file
        model.weight_files = tuple(WeightFile.of(file) for file in external_files(proto, path).values())
        check_unchanged([graph])
        return model

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Return the inputs without initializers of the same name, in the model's order."""
        graph = self.proto.graph
        initializers = {tensor.name for tensor in graph.initializer}
        initializers |= {sparse.values.name for sparse in graph.sparse_initializer}
        return tuple(port_of(info) for info in graph.input if info.name not in initializers)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """See `Model.outputs`."""
        return tuple(port_of(info) for info in self.proto.graph.output)

    def clone(self) -> OnnxModel:
        """Return a copy, as `Model.clone`; external data is shared."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        copy = OnnxModel(proto, self.path)
        copy.edits = self.edits
        copy.weight_files = self.weight_files
        copy.scratch = self.scratch
        return copy

    def excerpt(self, nodes: Iterable[Node]) -> tuple[OnnxModel, dict[int, int]]:
        """Return an excerpt, as `Model.excerpt`; the cost is proportional to the size of ``nodes``."""
        from graphpass.dialects.onnx.excerpt import counterparts, excerpt_of

        wanted = tuple(nodes)
        copy = OnnxModel(excerpt_of(self.proto, wanted), self.path)
        copy.edits = self.edits + 1
        copy.weight_files = self.weight_files
        copy.scratch = self.scratch
        return copy, counterparts(wanted, copy.graph)

    def digest(self) -> str:
        """Return a hash of the structure; see `Model.digest`. Locations of large tensors are ignored.

        Raises:
            ReadError: GP105, external data is missing.
        """
        hasher = hashlib.sha256()

        def summarise(tensor: onnx.TensorProto) -> onnx.TensorProto | None:
            stub = _stub(tensor)
            if stub is not None:
                hasher.update(repr((tensor.name, tensor.data_type, list(tensor.dims))).encode())
                hasher.update(sample(tensor, self.path))
            return stub

        hasher.update(rebuilt(self.proto, summarise).SerializeToString(deterministic=True))
        return hasher.hexdigest()

    def validate(self) -> None:
        """Run ONNX's checker without weights.

        Raises:
            UnsupportedError: GP310, the checker rejects the model; the message has its error.
        """
        skeleton = rebuilt(self.proto, _stub)
        # The checker reads data of sparse initializers, which are stubs here. Nodes only require the names.
        skeleton.graph.initializer.extend(
            onnx.TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=[0])
            for sparse in skeleton.graph.sparse_initializer
        )
        del skeleton.graph.sparse_initializer[:]
        _move_runtime_operators(skeleton)
        called = self.path or "the model"
        try:
            onnx.checker.check_model(skeleton)
        except onnx.checker.ValidationError as error:
            raise UnsupportedError("GP310", f"{called} is not valid ONNX: {' '.join(str(error).split())}") from error
        if (misfit := misfit_in(skeleton)) is not None:
            raise UnsupportedError("GP310", f"{called} is not valid ONNX: {misfit}")

    def read_note(self, key: str) -> str | None:
        """Return a note, as `Model.read_note`; notes are metadata properties ``graphpass.<key>``."""
        note = self._note(key)
        return None if note is None else note.value

    def write_note(self, key: str, text: str) -> None:
        note = self._note(key) or self.proto.metadata_props.add(key=f"graphpass.{key}")
        note.value = text

    def _note(self, key: str) -> onnx.StringStringEntryProto | None:
        return next((entry for entry in self.proto.metadata_props if entry.key == f"graphpass.{key}"), None)

    def build_graph(self, *, inline: bool = False) -> Graph:
        from graphpass.dialects.onnx.graph import build

        return build(self.proto, self.path, inline=inline)

    def rewriter(self) -> OnnxRewriter:
        from graphpass.dialects.onnx.rewriter import OnnxRewriter

        return OnnxRewriter(self.proto, self.path, self.graph, self.mark_edited)

    @contextlib.contextmanager
    def graphsurgeon(self) -> Iterator[gs.Graph]:
        """Edit the model as an onnx-graphsurgeon graph during the ``with`` block.

        The edits are written into `proto` at the end of the block, unless the block raises; all else in `proto` is
        unchanged. Elements of constants are read on first use. Nodes may be in any order.

        >>> with model.graphsurgeon() as graph:    # doctest: +SKIP
        ...     for node in graph.nodes:
        ...         if node.op == "Identity":
        ...             node.outputs[0].outputs[0].inputs[0] = node.inputs[0]
        ...     graph.cleanup()

        Yields:
            The graph, to be edited in place.

        Raises:
            UnsupportedError: GP344, the edited graph cannot be written.
        """
        from graphpass.dialects.onnx.graphsurgeon import Surgery
        from graphpass.dialects.onnx.write_back import WriteBack

        surgery = Surgery(self.proto, self.path)
        yield surgery.graph
        if WriteBack(surgery).run():
            self.mark_edited()

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[Path]:
        """Yield a file that ONNX Runtime and OpenVINO can read, during the ``with`` block.

        An unedited model yields its own file. Otherwise a file is written to a temporary folder, with hard links to the
        external data, or copies if the file system does not support links. ONNX's checker rejects hard links.

        Raises:
            ReadError: GP105, external data is missing.
            WriteError: GP503, the model exceeds the size limit of a file.
        """
        if self.path is not None and not self.edited:
            yield self.path
            return
        data = external_files(self.proto, self.path)
        # The prefix differs from that of staging folders, which other writers remove after a crash.
        with scratch_folder(".graphpass_model-", _place_of_links(data)) as folder:
            name = self.path.name if self.path is not None else "model.onnx"
            stage_onnx(self.proto, self.path, folder, name, link=True)
            yield folder / name


def parse_onnx(path: Path) -> onnx.ModelProto:
    """Parse an ``.onnx`` file, without external data.

    Returns:
        The model, with a graph and imports of operator sets.

    Raises:
        ReadError: GP104, the file is unreadable, damaged or not an ONNX model.
    """
    try:
        if (size := path.stat().st_size) > PROTO_LIMIT:
            raise ReadError("GP104", f"{path} has {size} bytes, more than protobuf's limit: it is not an ONNX model")
        content = path.read_bytes()
    except OSError as error:
        raise ReadError("GP104", f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise ReadError("GP104", f"{path} is empty", "export or copy the model again")
    if content.startswith(b"version https://git-lfs"):
        raise ReadError("GP104", f"{path} is a Git LFS pointer, not the model itself", "run: git lfs pull")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ReadError("GP104", f"{path} is not an ONNX model, or a damaged one", "export or copy it again") from error
    missing = "graph" if not proto.HasField("graph") else "" if proto.opset_import else "opset_import"
    if missing:
        raise ReadError(
            "GP104", f"{path} is not a complete ONNX model: the field {missing} is missing", "export or copy it again"
        )
    # Protobuf returns bytes if a name is not UTF-8.
    if any(isinstance(name, bytes) for name in _names(proto)):
        raise ReadError("GP104", f"{path} is damaged: a name is not UTF-8", "export or copy it again")
    return proto


def _names(proto: onnx.ModelProto) -> Iterator[str]:
    yield from (proto.producer_name, proto.producer_version, proto.domain, proto.doc_string)
    yield from (entry.domain for entry in proto.opset_import)
    yield from (text for entry in proto.metadata_props for text in (entry.key, entry.value))
    for graph in graphs(proto):
        yield from (graph.name, graph.doc_string)
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        if isinstance(graph, onnx.GraphProto):
            for info in (*graph.input, *graph.output, *graph.value_info):
                yield info.name
                yield from (dimension.dim_param for dimension in info.type.tensor_type.shape.dim)
        else:
            yield from (graph.domain, *graph.input, *graph.output, *graph.attribute)
    for tensor in tensors(proto):
        yield from (tensor.name, tensor.doc_string)
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))


def port_of(info: onnx.ValueInfoProto) -> Port:
    """Return an input or output as a `Port`."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(info.name, None, kind or "dynamic")
    tensor = info.type.tensor_type
    return Port(info.name, shape_of(tensor), element_type(tensor.elem_type))


def _stub(tensor: onnx.TensorProto) -> onnx.TensorProto | None:
    """Return an empty tensor in place of a weight; ``None`` for small inline tensors."""
    if not is_external(tensor) and nbytes(tensor) <= SMALL:
        return None
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0])


def _move_runtime_operators(proto: onnx.ModelProto) -> None:
    """Move ONNX Runtime's operators to its domain, which the checker skips."""
    opset = opset_of(proto)
    unknown = {name for name in _ONNX_RUNTIME_OPERATORS if not onnx.defs.has(name, opset, "")}
    for graph in graphs(proto):
        for node in graph.node:
            if node.op_type in unknown and node.domain in ONNX_DOMAINS:
                node.domain = "com.microsoft"
    if all(entry.domain != "com.microsoft" for entry in proto.opset_import):
        proto.opset_import.add(domain="com.microsoft", version=1)


def _place_of_links(data: dict[str, Path]) -> Path | None:
    """Return a folder for hard links to ``data``; ``None`` for the system's temporary folder."""
    if not data:
        return None
    beside = next(iter(data.values())).parent
    same_device = os.stat(tempfile.gettempdir()).st_dev == beside.stat().st_dev
    return None if same_device or not os.access(beside, os.W_OK) else beside
