"""Decide whether whole models fit the time and memory for a proof."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.errors import UsageError
from graphpass.ir.values import weight_bytes
from graphpass.machine import MEMORY_SHARE, available_memory, usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.model import Model

#: Seconds of a proof on this machine by default.
_SECONDS = 60.0

#: Memory that runtimes take for each byte of weights, maps and packed copies: 6.7 GB for 2.5 GB in two models.
_COPIES = 1.35

#: Seconds of one core that whole models take for each GB of weights: 120 s of two cores for 2.5 GB.
_SECONDS_PER_GB = 96.0

_UNITS = {"MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds a proof.

    Attributes:
        seconds: Time.
        bytes: Memory.
    """

    seconds: float
    bytes: float

    @classmethod
    def of_machine(cls) -> Budget:
        """Return a minute, and half of the memory that is available."""
        return cls(_SECONDS, MEMORY_SHARE * available_memory())

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``60s``, ``4GB`` or ``60s,4GB``; the other bound is the machine's.

        Raises:
            UsageError: GP250, it is no such text.
        """
        usual = cls.of_machine()
        seconds, size = usual.seconds, usual.bytes
        for part in text.split(","):
            match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|MB|GB)\s*", part)
            if match is None:
                raise UsageError("GP250", f"{text!r} is not a budget", "expected a time, a size or both: 60s,4GB")
            number, unit = float(match[1]), match[2]
            if unit in _UNITS:
                size = number * _UNITS[unit]
            else:
                seconds = number * (60 if unit == "min" else 1)
        return cls(seconds, size)

    def holds(self, models: Iterable[Model]) -> bool:
        """Return whether a proof of whole ``models`` stays within the budget."""
        sizes = [weight_bytes(model.graph) for model in models]
        seconds = max(sizes) / 1e9 * _SECONDS_PER_GB / usable_cores()
        return sum(sizes) * _COPIES <= self.bytes and seconds <= self.seconds
