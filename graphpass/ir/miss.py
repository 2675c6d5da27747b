"""Reasons that something is not found: a node, and a sentence."""

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
    """Reports the first node at which a pattern does not match.

    Attributes:
        node: The node.
        reason: The reason, as a sentence without its end.
    """

    node: Node
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} (at {self.node.called})"


class MissError(Exception):
    """Carries a `Miss` out of nested matching code, which returns it at its surface."""

    def __init__(self, node: Node, reason: str) -> None:
        """Create the error of a `Miss`."""
        super().__init__(reason)
        self.miss = Miss(node, reason)


def or_miss(find: Callable[Given, Found]) -> Callable[Given, Found | Miss]:
    """Decorate a function to return the `Miss` of a `MissError` that it raises."""

    @functools.wraps(find)
    def finds(*arguments: Given.args, **named: Given.kwargs) -> Found | Miss:
        try:
            return find(*arguments, **named)
        except MissError as error:
            return error.miss

    return finds
