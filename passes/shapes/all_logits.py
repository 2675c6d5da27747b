"""The pass `all-logits`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.last_logits import find_last_token
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.model import Model
from graphpass.ir.values import fixed_size


@dataclass(frozen=True)
class AllLogits(Pass[Model]):
    """Compute the logits of all tokens, not only of each row's last one.

    openvino.genai joins the tokens of several requests in one row (continuous batching), and selects the logits that it
    samples itself.

    Shapes:
        logits ``[batch, 1, vocabulary]`` become ``[batch, length, vocabulary]``

    Before:
        hidden states -> Slice(., -1:) or Gather(., -1) -> MatMul(., head) -> logits
    After:
        hidden states -> MatMul(., head) -> logits
    """

    name = "all-logits"

    def run(self, model: Model) -> Done | Skipped:
        found = model.analysis(find_last_token)
        if found is None:
            return Skipped("the model does not select the last token before its logits")
        rewriter, result = model.rewriter(), model.graph.writes["logits"]
        columns = fixed_size(result.source(), -1)
        for node in (found.selector, *reversed(found.reshapes)):
            rewriter.replace(node.outputs[0], rewriter.native(node.source()))
        rewriter.forget_shapes()
        rewriter.resize_port(result, [None, -1, None] if columns is None else [None, None, columns])
        rewriter.finish()
        return Done({"selections removed": 1})
