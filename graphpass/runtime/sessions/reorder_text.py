"""Reorders as ONNX Runtime's OpenVINO execution provider takes them, in its dynamic option ``kvcache_reorder``."""

from __future__ import annotations

import re

from graphpass.errors import UsageError

__all__ = ["parse_reorder"]

#: The provider keeps slots in 32 bits.
_MOST = 2**31 - 1


def parse_reorder(text: str) -> tuple[list[int], list[int]]:
    """Read ``"1,2,3;4,5,6"``: sources, then destinations.

    The provider itself ignores what stands behind a number, and lets the order of writes decide where a destination
    is named twice; both are errors here.

    Args:
        text: Decimal numbers with commas between them, one semicolon, as many numbers again.

    Returns:
        Sources and destinations, as `DecodeSession.reorder` takes them.

    Raises:
        UsageError: GP249, the text is something else.
    """
    parts = text.split(";")
    if len(parts) != 2:
        raise _wrong(text, f"there are {len(parts) - 1} semicolons, not one")
    sources, destinations = (_numbers(text, part) for part in parts)
    if len(sources) != len(destinations):
        raise _wrong(text, f"{len(sources)} sources, but {len(destinations)} destinations")
    if len(set(destinations)) != len(destinations):
        raise _wrong(text, "a destination is named twice")
    return sources, destinations


def _numbers(text: str, part: str) -> list[int]:
    found = []
    for number in part.split(","):
        if not re.fullmatch("[0-9]+", number) or int(number) > _MOST:
            raise _wrong(text, f"{number!r} is no slot")
        found.append(int(number))
    return found


def _wrong(text: str, reason: str) -> UsageError:
    return UsageError("GP249", f"{text!r} is no reorder: {reason}", "sources, then destinations: 1,2,3;4,5,6")
