"""Parse reorders in the form of ONNX Runtime's OpenVINO execution provider (``kvcache_reorder``)."""

from __future__ import annotations

import re

from graphpass.errors import UsageError

#: The provider stores slots in 32 bits.
_MOST = 2**31 - 1


def parse_reorder(text: str) -> tuple[list[int], list[int]]:
    """Parse ``"1,2,3;4,5,6"``: sources, then destinations.

    The provider itself ignores text after a number, and writes duplicate destinations in order; both are errors here.

    Args:
        text: Comma-separated decimal sources, a semicolon, and as many destinations.

    Returns:
        Sources and destinations for `DecodeSession.reorder`.

    Raises:
        UsageError: GP249, the text has another form.

    Examples:
        >>> from graphpass.runtime import parse_reorder
        >>> parse_reorder("1,2,3;4,5,6")
        ([1, 2, 3], [4, 5, 6])
    """
    reason = None
    parts = [part.split(",") for part in text.split(";")]
    numbers = [number for part in parts for number in part]
    wrong = next((number for number in numbers if not re.fullmatch("[0-9]+", number) or int(number) > _MOST), None)
    if len(parts) != 2:
        reason = f"there are {len(parts) - 1} semicolons, not one"
    elif wrong is not None:
        reason = f"{wrong!r} is not a slot"
    elif len(parts[0]) != len(parts[1]):
        reason = f"{len(parts[0])} sources, but {len(parts[1])} destinations"
    elif len({int(number) for number in parts[1]}) != len(parts[1]):
        reason = "a destination is named twice"
    if reason is not None:
        raise UsageError("GP249", f"{text!r} is not a reorder: {reason}", "sources, then destinations: 1,2,3;4,5,6")
    sources, destinations = ([int(number) for number in part] for part in parts)
    return sources, destinations
