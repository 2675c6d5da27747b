"""The pass `unsqueeze-logits`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.last_logits import logits_of_rows
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.model import Model
from graphpass.ir.values import fixed_size


@dataclass(frozen=True)
class UnsqueezeLogits(Pass[Model]):
    """Add the axis of positions to logits of each row's last token.

    Runtimes read logits as ``[batch, length, vocabulary]``. Exports that select the last token inside may omit the
    axis, for example as ``logits[:, -1]``.

    Shapes:
        logits ``[batch, vocabulary]`` become ``[batch, 1, vocabulary]``

    Before:
        Gather(hidden states, -1) -> MatMul(., head) -> logits
    After:
        Gather(hidden states, -1) -> MatMul(., head) -> Unsqueeze(., 1) -> logits
    """

    name = "unsqueeze-logits"

    def run(self, model: Model) -> Done | Skipped:
        result = model.analysis(logits_of_rows)
        if result is None:
            return Skipped("the model has no logits [batch, vocabulary]")
        rewriter, logits = model.rewriter(), result.source()
        rewriter.redirect(result, 0, rewriter.op("Unsqueeze", logits, axes=[1], name=f"{result.name}/positions"))
        rewriter.resize_port(result, [None, 1, fixed_size(logits, 1)])
        rewriter.finish()
        return Done({"outputs reshaped": 1})
