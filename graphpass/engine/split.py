"""Name the sizes of a prefill and a decode model of static shapes."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.errors import UsageError
from graphpass.ir.inputs import check_positions

#: Names of the two models.
PHASES = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Split:
    """Sizes of the two models.

    Attributes:
        prompt: Tokens of the longest prompt.
        chunk: Tokens of a run of the prefill model.
        capacity: Positions of the decode model, those of the prompt included.
        after: Pipeline that runs on each static model.
    """

    prompt: int
    chunk: int
    capacity: int
    after: str = ""

    def __post_init__(self) -> None:
        """Check that they fit into each other.

        Raises:
            UsageError: GP266.
        """
        if not 1 <= self.chunk <= self.prompt <= self.capacity:
            sizes = f"a chunk of {self.chunk}, a prompt of {self.prompt} and a capacity of {self.capacity}"
            raise UsageError("GP266", f"{sizes} do not fit", "1 <= chunk <= prompt <= capacity")
        check_positions("a capacity", self.capacity)
