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

#: Default time budget in seconds.
_SECONDS = 60.0

#: Bytes of memory that runtimes use for each byte of weights, memory maps and packed copies included. Measured: 6.7 GB
#: for two models of 2.5 GB.
_COPIES = 1.35

#: Core seconds of a comparison of whole models for each GB of weights. Measured: 120 s on two cores for 2.5 GB.
_SECONDS_PER_GB = 96.0

_UNITS = {"MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a comparison of whole models.

    Attributes:
        seconds: Time in seconds.
        bytes: Memory in bytes.
    """

    seconds: float
    bytes: float

    @classmethod
    def of_machine(cls) -> Budget:
        """Return 60 seconds, and half of the available memory."""
        return cls(_SECONDS, MEMORY_SHARE * available_memory())

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse ``60s``, ``4GB`` or ``60s,4GB``; a missing limit is that of `of_machine`.

        Args:
            text: Numbers with the units ``s``, ``min``, ``MB`` (10^6 bytes) or ``GB`` (10^9), separated by commas.

        Returns:
            The limits, in seconds and bytes.

        Raises:
            UsageError: GP250, the text has another form.
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
        """Return whether a comparison of whole ``models`` stays within the budget, as estimated from weights."""
        sizes = [weight_bytes(model.graph) for model in models]
        seconds = max(sizes) / 1e9 * _SECONDS_PER_GB / usable_cores()
        return sum(sizes) * _COPIES <= self.bytes and seconds <= self.seconds
