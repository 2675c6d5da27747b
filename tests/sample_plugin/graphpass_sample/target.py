"""A third party's target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from graphpass.engine.conditions import OPENVINO
from graphpass.engine.passes import Condition, Pass
from graphpass.engine.registry import get_pass
from graphpass.engine.target import Target
from graphpass.ir.model import Model


@dataclass(frozen=True)
class Sample(Target):
    """Somebody's own runtime."""

    name: ClassVar[str] = "sample"
    description: ClassVar[str] = "Somebody's own runtime."
    output_file: ClassVar[str] = "openvino_model.xml"
    contract: ClassVar[tuple[Condition, ...]] = (OPENVINO,)

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`."""
        names = ["sample-scale"] if model.dialect == "openvino" else ["to-openvino", "sample-scale"]
        return tuple(get_pass(name)() for name in names)
