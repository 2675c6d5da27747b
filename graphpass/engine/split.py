"""Sizes of a pair of static models for prefill and decode."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.errors import UsageError
from graphpass.ir.inputs import check_positions

#: Names of the two models of a pair.
PHASES = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Split:
    """Sizes of a pair of static models.

    Attributes:
        prompt: Maximum number of prompt tokens.
        chunk: New tokens per step of the prefill model.
        capacity: Positions of the decode model, including the prompt.
        after: Pipeline that runs on each static model.
    """

    prompt: int
    chunk: int
    capacity: int
    after: str = ""

    def __post_init__(self) -> None:
        """Check that ``1 <= chunk <= prompt <= capacity``.

        Raises:
            UsageError: GP266, the sizes are inconsistent.
        """
        if not 1 <= self.chunk <= self.prompt <= self.capacity:
            sizes = f"a chunk of {self.chunk}, a prompt of {self.prompt} and a capacity of {self.capacity}"
            raise UsageError("GP266", f"{sizes} are inconsistent", "choose 1 <= chunk <= prompt <= capacity")
        check_positions("a capacity", self.capacity)
