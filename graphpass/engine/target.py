"""`Target`: a runtime and device that models are made for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.errors import PassFailedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.engine.passes import Condition, Pass
    from graphpass.ir.model import Model

__all__ = ["Target"]

_SEQ2SEQ_HINT = "targets cpu and gpu take them"


@dataclass(frozen=True)
class Target(ABC):
    """A runtime and device that models are made for. Registered under entry point group ``graphpass.targets``.

    Subclasses are frozen dataclasses; their fields are the target's options, as those of a pass are:
    ``--target gpu{cache=reorder}``.

    Attributes:
        name: What ``--target`` calls it.
        description: One line for people.
        output_file: What its model file is called.
        contract: What holds for every model made for it.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    output_file: ClassVar[str]
    contract: ClassVar[tuple[Condition, ...]] = ()

    @abstractmethod
    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """The passes that make ``model`` fit.

        Args:
            model: What is to be converted; it is only looked at.

        Returns:
            The passes. They refuse a model that they cannot take, when they run.
        """

    @property
    def gives_up_fusion(self) -> bool:
        """Whether what was asked for costs what runtimes fuse, so that the result need not be fused."""
        return False

    def encoder_pipeline(self, model: Model) -> tuple[Pass[Any], ...]:  # noqa: ARG002
        """The passes that make the encoder beside a decoder fit; see `pipeline`.

        Raises:
            UsageError: GP226, models of an encoder and a decoder are not made for this target.
        """
        raise UsageError("GP226", f"target {self.name} takes no models of an encoder and a decoder", _SEQ2SEQ_HINT)

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:  # noqa: ARG002
        """The passes that make a decoder beside an encoder fit; see `pipeline`.

        Args:
            model: The decoder for all steps but the first, or for all.
            first: The file of the decoder for the first step, where there is another.

        Raises:
            UsageError: GP226, models of an encoder and a decoder are not made for this target.
        """
        raise UsageError("GP226", f"target {self.name} takes no models of an encoder and a decoder", _SEQ2SEQ_HINT)

    def check(self, model: Model) -> None:
        """Check the contract.

        Raises:
            PassFailedError: GP405, with the part of the contract that does not hold.
        """
        for condition in self.contract:
            if missing := condition.missing(model):
                raise PassFailedError(
                    "GP405", f"target {self.name} needs {condition.name!r}, but {missing}", condition.hint
                )
