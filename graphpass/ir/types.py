"""Data types that all of graphpass shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dialect = Literal["onnx", "openvino"]

#: Names of the dialects' formats.
FORMATS: dict[Dialect, str] = {"onnx": "ONNX", "openvino": "OpenVINO IR"}

Dimension = int | str | None
"""One dimension: its size, the name of a symbol, or ``None`` if unknown."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a model.

    Attributes:
        name: The name by which a runtime addresses the port.
        shape: One entry per dimension; ``None`` if the rank is unknown.
        element_type: OpenVINO's short name: ``"f32"``, ``"i64"``, ``"boolean"`` ...

    Examples:
        >>> import graphpass
        >>> graphpass.load("build/fixtures/llama/onnx").inputs[0]
        Port(name='input_ids', shape=('batch_size', 'sequence_length'), element_type='i64')
    """

    name: str
    shape: tuple[Dimension, ...] | None
    element_type: str


def is_fixed(shape: tuple[Dimension, ...] | None) -> bool:
    """Return whether all sizes of a shape are fixed."""
    return shape is not None and all(isinstance(size, int) for size in shape)


def shape_text(shape: tuple[Dimension, ...] | None, *, symbols: bool = True) -> str:
    """Return a shape as text: ``[batch, 2, ?]``.

    Args:
        shape: One entry per dimension; ``None`` if the rank is unknown.
        symbols: Whether to name symbols; otherwise they are unknown, ``[?, 2, ?]``.
    """
    if shape is None:
        return "of any rank"
    return f"[{', '.join(str(size) if isinstance(size, int) or (size and symbols) else '?' for size in shape)}]"
