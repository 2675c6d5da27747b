"""A third party's pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Changed, Pass, PassResult
from graphpass.ir.types import Dialect


@dataclass(frozen=True)
class Scale(Pass[OpenVINOModel]):
    """Multiply the first output by a factor.

    Options:
        factor: What to multiply by; 1 changes the graph and computes the same.
    """

    name: ClassVar[str] = "sample-scale"
    dialect: ClassVar[Dialect | None] = "openvino"

    factor: float = 1.0

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        import numpy
        from openvino import opset13

        result = model.ov_model.output(0).get_node()
        source = result.input_value(0)
        names = source.get_names()
        scaled = opset13.multiply(source, opset13.constant(numpy.float32(self.factor)))
        scaled.set_friendly_name("sample-scale")
        source.set_names(set())
        scaled.output(0).set_names(names)
        result.input(0).replace_source_output(scaled.output(0))
        return Changed(model, {"outputs scaled": 1}, (f"scaled {', '.join(sorted(names))}",))
