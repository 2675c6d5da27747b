"""Write new ONNX weights in chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx

from graphpass.dialects.onnx.graphsurgeon import LazyWeights
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.tensors import external_data, is_external, nbytes
from graphpass.dialects.rounding import pieces_of
from graphpass.ir.graph import Node
from graphpass.ir.writer import Handle
from graphpass.storage.scratch_file import ScratchFile


class NewWeights:
    """Writes weights; those computed from data files are written to a new data file.

    Attributes:
        file: The new data file; ``None`` if unused.
    """

    def __init__(self, model_file: Path | None, prefix: str) -> None:
        """Create a writer for weights of ``model_file``; ``prefix`` begins the data file's name."""
        self.file: ScratchFile | None = None
        self._model_file = model_file
        self._prefix = prefix
        self._placed: list[onnx.TensorProto] = []

    def written(
        self, data_type: int, shape: Sequence[int], pieces: Iterable[bytes], *, external: bool
    ) -> onnx.TensorProto:
        """Return a tensor with the bytes of ``pieces``, without a name.

        Args:
            data_type: ONNX's code of the element type.
            shape: Shape of the tensor.
            pieces: The data in the layout of ``raw_data``, in chunks.
            external: Whether to write the data into the new data file; otherwise it is inline.
        """
        made = onnx.TensorProto(data_type=data_type, dims=shape)
        if not external:
            made.raw_data = b"".join(pieces)
            return made
        with self._stored(made) as file:
            for piece in pieces:
                file.write(piece)
        return made

    def declare(self, rewriter: OnnxRewriter, tensor: onnx.TensorProto, name: str) -> Handle:
        """Create a constant with the data of a tensor.

        Args:
            rewriter: Rewriter of the model that gets the constant.
            tensor: A tensor that `written` returned.
            name: Name of the constant, with a number if it is taken.

        Returns:
            The constant.
        """
        made = rewriter.declared(LazyWeights(tensor, None), list(tensor.dims), name)
        weights = rewriter.weights(made)
        assert weights is not None
        if is_external(weights.tensor):
            self._placed.append(weights.tensor)
        return made

    def move_rest(self, rewriter: OnnxRewriter, kept: Iterable[Node]) -> None:
        """Move remaining external constants to the new data file if they are smaller than it.

        Otherwise the result would need a copy of their whole old file.

        Args:
            rewriter: Rewriter of the model that contains the constants.
            kept: Constants that the model still reads; inline ones are not moved.
        """
        rest = [node for node in kept if is_external(node.native)]
        if self.file is None or sum(nbytes(node.native) for node in rest) > self.file.size:
            return
        for node in rest:
            pieces = self.pieces(node.native)
            moved = self.written(node.native.data_type, node.native.dims, pieces, external=True)
            value = node.outputs[0]
            rewriter.replace(value, self.declare(rewriter, moved, f"{value.name}/{self._prefix}"))

    def finish(self) -> None:
        """Close the data file, and set references to it."""
        if self.file is None:
            return
        self.file.finish()
        for tensor in self._placed:
            tensor.external_data[0].value = self.file.name

    def pieces(self, tensor: onnx.TensorProto) -> Iterator[bytes]:
        """Return an iterator over the bytes of an external tensor.

        Raises:
            ReadError: GP105, the data is missing.
        """
        data = external_data(tensor, self._model_file)
        return pieces_of(data.file, data.offset, data.length)

    @contextlib.contextmanager
    def _stored(self, tensor: onnx.TensorProto) -> Iterator[ScratchFile]:
        """Refer ``tensor`` to the bytes that the ``with`` block writes into the data file.

        Yields:
            The data file, to which the block appends.
        """
        file = self.file = self.file or ScratchFile(self._prefix)
        start = file.begin()
        yield file
        length = file.size - start
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", ""), ("offset", str(file.end(start))), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
