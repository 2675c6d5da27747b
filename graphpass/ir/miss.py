"""Misses: the first node at which a pattern does not match, with the reason."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from graphpass.ir.graph import Node

Given = ParamSpec("Given")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Miss:
    """The first node at which a pattern does not match, with the reason.

    Attributes:
        node: The node.
        reason: The reason, as a sentence without a period.
    """

    node: Node
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} (at {self.node.called})"


class MissError(Exception):
    """Raises a `Miss` from nested matching code; `or_miss` converts it to a result."""

    def __init__(self, node: Node, reason: str) -> None:
        """Create the error of a `Miss`."""
        super().__init__(reason)
        self.miss = Miss(node, reason)


def or_miss(find: Callable[Given, Found]) -> Callable[Given, Found | Miss]:
    """Decorate a function to return the `Miss` of a raised `MissError`.

    Returns:
        A function that returns the result of ``find``, or the miss.
    """

    @functools.wraps(find)
    def finds(*arguments: Given.args, **named: Given.kwargs) -> Found | Miss:
        try:
            return find(*arguments, **named)
        except MissError as error:
            return error.miss

    return finds
