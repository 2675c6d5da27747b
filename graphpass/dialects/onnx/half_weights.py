"""Round ONNX weights to f16, a piece at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

from graphpass.dialects.onnx.tensors import external_data, is_external
from graphpass.dialects.rounding import pieces_of, rounded
from graphpass.storage.scratch_file import ScratchFile

_F16 = onnx.TensorProto.FLOAT16


class HalfWeights:
    """Rounds weights to f16; those of data files go to a new one.

    Attributes:
        file: The new data file; ``None`` if no weight lies in one.
    """

    def __init__(self, model_file: Path | None) -> None:
        """Round weights of the model ``model_file``."""
        self.file: ScratchFile | None = None
        self._model_file = model_file
        self._placed: list[onnx.TensorProto] = []

    def rounded(self, tensor: onnx.TensorProto, *, cut: bool) -> tuple[onnx.TensorProto, bool]:
        """Return ``tensor``, of f32, in f16, without a name, and whether finite numbers became infinite.

        Args:
            tensor: The weight.
            cut: Whether to cut numbers to the range of f16.

        Raises:
            ReadError: GP105, external data is missing.
        """
        made = onnx.TensorProto(data_type=_F16, dims=tensor.dims)
        if not is_external(tensor):
            half, overflows = rounded(numpy_helper.to_array(tensor), cut=cut)
            made.raw_data = half.tobytes()
            return made, overflows
        overflows = False
        with self._stored(made) as file:
            for piece in self._pieces(tensor):
                half, beyond = rounded(numpy.frombuffer(piece, "<f4"), cut=cut)
                overflows |= beyond
                file.write(half.tobytes())
        return made, overflows

    def moved(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """Return ``tensor``, of a data file, as a tensor of the new one."""
        made = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
        with self._stored(made) as file:
            for piece in self._pieces(tensor):
                file.write(piece)
        return made

    def place(self, tensor: onnx.TensorProto) -> None:
        """Note a copy of a tensor from `rounded` or `moved`, for `finish`."""
        if is_external(tensor):
            self._placed.append(tensor)

    def finish(self) -> None:
        """Close the data file, and refer to it."""
        if self.file is None:
            return
        self.file.finish()
        for tensor in self._placed:
            tensor.external_data[0].value = self.file.name

    @contextlib.contextmanager
    def _stored(self, tensor: onnx.TensorProto) -> Iterator[ScratchFile]:
        """Let ``tensor`` have the bytes that the ``with`` block writes into the data file."""
        file = self.file = self.file or ScratchFile("f16")
        start = file.begin()
        yield file
        length = file.size - start
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", ""), ("offset", str(file.end(start))), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)

    def _pieces(self, tensor: onnx.TensorProto) -> Iterator[bytes]:
        data = external_data(tensor, self._model_file)
        return pieces_of(data.file, data.offset, data.length)
