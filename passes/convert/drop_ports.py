"""The pass `drop-ports`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError
from graphpass.ir.model import Model


@dataclass(frozen=True)
class DropPorts(Pass[Model]):
    """Drop outputs, with the operators that only they read, and inputs that no operator reads.

    Outputs with weights of attention keep it from being fused, and programs do not feed inputs of unknown names.

    Options:
        inputs: Names of inputs.
        outputs: Names of outputs.

    Shapes:
        unchanged

    Before:
        scores -> Softmax -> MatMul(., value), attentions.0 (Result)
    After:
        scores -> Softmax -> MatMul(., value)

    Raises:
        PreconditionError: GP349, the model has no such input or output, an operator reads the input, or the output is
            that of a cache.
    """

    name = "drop-ports"

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def run(self, model: Model) -> Done:
        if (reason := next(self._misfits(model), None)) is not None:
            raise PreconditionError("GP349", reason, "graphpass inspect lists inputs and outputs")
        rewriter = model.rewriter()
        rewriter.drop([model.graph.writes[name] for name in self.outputs])
        for name in self.inputs:
            rewriter.drop_input(name)
        rewriter.finish()
        counts = {"inputs dropped": len(self.inputs), "outputs dropped": len(self.outputs)}
        return Done({name: count for name, count in counts.items() if count})

    def _misfits(self, model: Model) -> Iterator[str]:
        graph, written = model.graph, {cache.write for cache in analyze_caches(model).caches}
        for name in self.outputs:
            if name not in graph.writes:
                yield f"the model has no output {name}"
            elif name in written:
                yield f"output {name} is that of a cache"
        for name in self.inputs:
            if name not in graph.parameters:
                yield f"the model has no input {name}"
            elif graph.uses(graph.parameters[name]):
                yield f"an operator reads input {name}"
