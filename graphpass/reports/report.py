"""`Report`: what each report for people and programs offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Report(ABC):
    """Reports as text and as an object of JSON, whose schema ``schemas`` has."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.text()

    @abstractmethod
    def text(self) -> str:
        """Return the text of the command; keywords of some ask for more lines."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--format json``."""
