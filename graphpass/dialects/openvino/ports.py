"""Names and shapes of OpenVINO's ports, as plain data."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.types import Dimension


def port_name(port: openvino.Output) -> str:
    """Return a port's stable name: a tensor name, else its node's name.

    Several tensor names yield the one that is the node's name, else the first in alphabetical order.
    """
    names = port.get_names()
    own: str = port.get_node().get_friendly_name()
    return own if not names or own in names else min(names)


def shape_of(shape: openvino.PartialShape) -> tuple[Dimension, ...] | None:
    """Return a partial shape as plain data; ``None`` for an unknown rank."""
    # Its words are one call into OpenVINO, each dimension would be two.
    return _dimensions(shape.to_string())


@functools.lru_cache(maxsize=4096)
def _dimensions(words: str) -> tuple[Dimension, ...] | None:
    """Parse the words of a shape: ``"[?,2,1..8]"``, or ``"[...]"`` if nothing is known."""
    if words == "[...]":
        return None
    return tuple(int(word) if word.isdecimal() else None for word in words[1:-1].split(",") if word)
