"""The pass `fix-input`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS


@dataclass(frozen=True)
class FixInput(Pass[Model]):
    """Replace an input by a constant, and drop outputs that only return the input.

    Exports may have inputs that a runtime does not feed: the number of logits to keep, the size of a window.

    Shapes:
        the input has a static shape; each element gets the value

    Before:
        logits_to_keep (Parameter) -> Slice; window (Parameter) -> Identity -> window_out (Result)
    After:
        Constant -> Slice

    Options:
        input: Name of the input.
        value: Value of each element.

    Raises:
        PreconditionError: GP349, the model has no input of this name, or its shape is not static.
    """

    name = "fix-input"

    input: str = "num_logits_to_keep"
    value: int = 0

    def run(self, model: Model) -> Done:
        graph, rewriter = model.graph, model.rewriter()
        parameter = graph.parameters.get(self.input)
        if parameter is None:
            raise PreconditionError("GP349", f"the model has no input {self.input}", "graphpass inspect lists them")
        sizes = [size for size in parameter.shape or () if isinstance(size, int)]
        if parameter.shape is None or len(sizes) < len(parameter.shape):
            reason = f"input {self.input} does not have a static shape"
            raise PreconditionError("GP349", reason, "name an input with constant dimensions")
        uses = list(graph.forward([parameter], lambda use: use.node.outputs if use.node.op in CASTS else ()))
        results = [use.node for use in uses if use.node.op == "Result"]
        rewriter.drop(results)
        write = rewriter.under(self.input)
        made = write.convert(write.constant(numpy.full(sizes, self.value)), parameter.element_type)
        rewriter.redirect_uses(parameter, made)
        rewriter.drop_input(self.input)
        rewriter.finish()
        return Done({"inputs fixed": 1, **({"outputs dropped": len(results)} if results else {})})
