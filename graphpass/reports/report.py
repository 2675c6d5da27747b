"""`Report`, the base class of reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Report(ABC):
    """A report, as text and as a JSON object; the folder ``schemas`` has the schemas."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.text()

    @abstractmethod
    def text(self) -> str:
        """Return the text of the command; some reports have keyword arguments for more lines."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--format json``."""
