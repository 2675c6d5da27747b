"""Passes that report the outcome that they are given."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy

from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.model import Model


@dataclass(frozen=True)
class Scale(Pass[Model]):
    """Multiplies the logits by a factor, and returns the stated result."""

    name: ClassVar[str] = "scale"
    factor: float = 1.0
    says: str = "changed"

    def run(self, model):
        from openvino import opset13

        result = model.ov_model.output("logits").get_node()
        source = result.input_value(0)
        scaled = opset13.multiply(source, opset13.constant(numpy.float32(self.factor)))
        source.set_names(set())
        scaled.output(0).set_names({"logits"})
        result.input(0).replace_source_output(scaled.output(0))
        if self.says == "skipped":
            return Skipped("not today")
        if self.says == "changed":
            model.mark_edited()
        return Done({"outputs scaled": 1, "others": 0}, ("logits are scaled",))


@dataclass(frozen=True)
class Idle(Pass[Model]):
    name: ClassVar[str] = "idle"
    says: str = "unchanged"
    seconds: float = 0.0
    fails: bool = False

    def run(self, model):
        time.sleep(self.seconds)
        if self.fails:
            raise ValueError("no")
        if self.says == "skipped":
            return Skipped("not today")
        if self.says == "changed":
            model.mark_edited()
            return Done()
        return Done(notes=("nothing found",))
