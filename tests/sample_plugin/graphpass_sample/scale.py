"""A third party's pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.engine.passes import Done, Pass
from graphpass.ir.model import Model


@dataclass(frozen=True)
class Scale(Pass[Model]):
    """Multiply the first output by a factor.

    Options:
        factor: Number to multiply by; 1 changes the graph and computes the same.
    """

    name: ClassVar[str] = "sample-scale"

    factor: float = 1.0

    def run(self, model: Model) -> Done:
        """See `Pass.run`."""
        rewriter = model.rewriter()
        write = rewriter.under("sample-scale")
        name = model.outputs[0].name
        output = next(node.source() for node in model.graph.of_op("Result") if node.name == name)
        factor = write.number(self.factor, output.element_type)
        rewriter.replace(output, write.op("Multiply", output, factor, name="sample-scale"))
        rewriter.finish()
        return Done({"outputs scaled": 1}, (f"scaled {name}",))
