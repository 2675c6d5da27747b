"""Names and shapes of OpenVINO's ports, as plain data."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.types import Dimension


def port_name(port: openvino.Output) -> str:
    """Return a port's stable name: a tensor name, or else the node's name.

    Among several tensor names, the node's name is preferred, then the first in alphabetical order.
    """
    names = port.get_names()
    own: str = port.get_node().get_friendly_name()
    return own if not names or own in names else min(names)


def shape_of(shape: openvino.PartialShape) -> tuple[Dimension, ...] | None:
    """Return a partial shape as plain data; ``None`` for an unknown rank."""
    # Text requires one call into OpenVINO; reading dimensions would require two calls each.
    return _dimensions(shape.to_string())


@functools.lru_cache(maxsize=4096)
def _dimensions(text: str) -> tuple[Dimension, ...] | None:
    """Return the shape in a text, ``"[?,2,1..8]"``; ``None`` for an unknown rank, ``"[...]"``."""
    if text == "[...]":
        return None
    return tuple(int(size) if size.isdecimal() else None for size in text[1:-1].split(",") if size)
