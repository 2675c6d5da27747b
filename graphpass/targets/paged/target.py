"""The target `paged`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.targets.paged import rules, trial
from graphpass.targets.stateful import StatefulTarget

if TYPE_CHECKING:
    from graphpass.engine.findings import Finding, Observation
    from graphpass.ir.cache import Inventory
    from graphpass.ir.model import Model

__all__ = ["Paged"]


@dataclass(frozen=True)
class Paged(StatefulTarget):
    """Paged attention, openvino.genai's default backend.

    It keeps blocks of caches itself and computes attention without the model's mask: what it would lose of a model
    (ALiBi, a window that it does not find) breaks the contract, so that no such model is written.

    Options:
        cache: ``beam`` alone; the scheduler of openvino.genai shares and frees blocks.
    """

    name: ClassVar[str] = "paged"
    description: ClassVar[str] = "openvino.genai's default backend: what SDPAToPagedAttention transforms rightly"
    no_reorder: ClassVar[tuple[str, str] | None] = (
        "paged attention keeps the caches' slots itself, so they cannot be reordered from outside",
        "leave out cache=reorder; the scheduler of openvino.genai shares and frees blocks",
    )

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:
        """See `Target.predict`."""
        return rules.predict(model, inventory)

    def observe(self, model: Model) -> Observation | str:
        """See `Target.observe`."""
        return trial.observe(model)
