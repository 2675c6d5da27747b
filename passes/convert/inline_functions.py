"""The pass `inline-functions`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.functions import own_functions
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError


@dataclass(frozen=True)
class InlineFunctions(Pass[OnnxModel]):
    """Replace calls of model-local functions by their bodies.

    Analyses do not find attention inside functions, because a call is an opaque operator. Functions in the domain
    `com.microsoft` are not inlined: runtimes have kernels for them.

    Before:
        mine.Scores(query, key)
    After:
        Softmax(MatMul(query, key))

    Raises:
        UnsupportedError: GP339, a function cannot be inlined.
    """

    name = "inline-functions"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done | Skipped:
        if not (own := own_functions(model.proto)):
            return Skipped("the model has no local functions to inline")
        import onnx.inliner

        try:
            model.proto = onnx.inliner.inline_selected_functions(model.proto, own)
        except RuntimeError as error:
            reason = f"functions cannot be inlined: {' '.join(str(error).split())}"
            raise UnsupportedError("GP339", reason, "export the model without local functions") from error
        model.mark_edited()
        return Done({"functions inlined": len(own)})
