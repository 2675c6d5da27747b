"""Round ONNX weights to 16-bit types, in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.tensors import element_code, is_external
from graphpass.dialects.rounding import Half, rounded_bytes


class HalfWeights(NewWeights):
    """Rounds weights; results for weights in data files are written to a new data file."""

    def __init__(self, model_file: Path | None, half: Half) -> None:
        """Create a writer for weights of the model ``model_file``, rounded to ``half``."""
        super().__init__(model_file, half)
        self._half = half

    def rounded(self, tensor: onnx.TensorProto, *, cut: bool) -> tuple[onnx.TensorProto, bool]:
        """Return the f32 tensor rounded, without a name, and whether finite values became infinite.

        Args:
            tensor: The weight.
            cut: Whether to clip values to the range of the type first.

        Raises:
            ReadError: GP105, external data is missing.
        """
        overflows: list[bool] = []
        external = is_external(tensor)
        pieces: Iterable[numpy.ndarray] = (
            (numpy.frombuffer(piece, "<f4") for piece in self.pieces(tensor))
            if external
            else (numpy_helper.to_array(tensor),)
        )

        def halves() -> Iterator[bytes]:
            for piece in pieces:
                content, beyond = rounded_bytes(piece, self._half, cut=cut)
                overflows.append(beyond)
                yield content

        made = self.written(element_code(self._half), tensor.dims, halves(), external=external)
        return made, any(overflows)
