"""A third party's target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphpass.engine.conditions import OPENVINO
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.target import Target
from graphpass.ir.model import Model
from graphpass_sample import rules, trial, view


@dataclass(frozen=True)
class Sample(Target):
    """Somebody's own runtime.

    Options:
        factor: What its outputs are multiplied by.
    """

    name = "sample"
    description = "Somebody's own runtime."
    dialect = "openvino"
    output_file = "openvino_model.xml"
    contract = (OPENVINO,)
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)
    view = staticmethod(view.view)

    factor: float = 1.0

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`."""
        scale = "sample-scale" if self.factor == 1.0 else f"sample-scale{{factor={self.factor}}}"
        return parse(scale if model.dialect == "openvino" else f"to-openvino,{scale}")
