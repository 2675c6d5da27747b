"""The target `cpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.targets.cpu import rules, trial
from graphpass.targets.stateful import StatefulTarget

if TYPE_CHECKING:
    from graphpass.engine.findings import Finding, Observation
    from graphpass.ir.cache import Inventory
    from graphpass.ir.model import Model

__all__ = ["CPU"]


@dataclass(frozen=True)
class CPU(StatefulTarget):
    """OpenVINO's CPU plugin, and openvino.genai on it.

    The form is the one that the plugin fuses into a stateful attention kernel.

    Options:
        cache: With ``reorder`` the inputs ``src_idx`` and ``dst_idx`` move slots of caches, and a shorter mask cuts
            them; the plugin does not fuse that.
    """

    name: ClassVar[str] = "cpu"
    description: ClassVar[str] = "OpenVINO on CPU: stateful, with attention fused; runs in openvino.genai"
    seq2seq: ClassVar[bool] = True

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:
        """See `Target.predict`."""
        return rules.predict(model, inventory)

    def observe(self, model: Model) -> Observation | str:
        """See `Target.observe`."""
        return trial.observe(model)
