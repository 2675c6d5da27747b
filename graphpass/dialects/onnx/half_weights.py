"""Round ONNX weights to f16, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.tensors import is_external
from graphpass.dialects.rounding import rounded

_F16 = onnx.TensorProto.FLOAT16


class HalfWeights(NewWeights):
    """Rounds weights to f16; those of data files go to a new one."""

    def __init__(self, model_file: Path | None) -> None:
        """Round weights of the model ``model_file``."""
        super().__init__(model_file, "f16")

    def rounded(self, tensor: onnx.TensorProto, *, cut: bool) -> tuple[onnx.TensorProto, bool]:
        """Return ``tensor``, of f32, in f16, without a name, and whether finite numbers became infinite.

        Args:
            tensor: The weight.
            cut: Whether to cut numbers to the range of f16.

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
                half, beyond = rounded(piece, cut=cut)
                overflows.append(beyond)
                yield half.tobytes()

        made = self.written(_F16, tensor.dims, halves(), external=external)
        return made, any(overflows)
