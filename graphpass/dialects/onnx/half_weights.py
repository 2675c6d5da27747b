"""Round ONNX weights to types of 16 bits, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.tensors import element_code, is_external
from graphpass.dialects.rounding import Half, rounded


class HalfWeights(NewWeights):
    """Rounds weights; those of data files go to a new one."""

    def __init__(self, model_file: Path | None, half: Half) -> None:
        """Round weights of the model ``model_file`` to ``half``."""
        super().__init__(model_file, half)
        self._half = half

    def rounded(self, tensor: onnx.TensorProto, *, cut: bool) -> tuple[onnx.TensorProto, bool]:
        """Return ``tensor``, of f32, rounded, without a name, and whether finite numbers became infinite.

        Args:
            tensor: The weight.
            cut: Whether to cut numbers to the range of the type.

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
                content, beyond = rounded(piece, self._half, cut=cut)
                overflows.append(beyond)
                yield content

        made = self.written(element_code(self._half), tensor.dims, halves(), external=external)
        return made, any(overflows)
