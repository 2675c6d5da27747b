"""The pass `compute-mask`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.masks import given_mask
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.model import Model
from graphpass.ir.values import MASKED
from graphpass.passes.attention.step_builder import StepBuilder


@dataclass(frozen=True)
class ComputeMask(Pass[Model]):
    """Replace an input with the whole mask of attention by attention_mask.

    Callers of such exports compute the mask of each step, as Qualcomm's and Core ML's runtimes do. Other runtimes feed
    ``attention_mask``.

    Shapes:
        the input ``[batch, 1, length, total]`` becomes attention_mask i64 ``[batch, total]``

    Before:
        mask -> Add(scores, .)
    After:
        LogicalAnd(slot of the key <= slot of the query, attention_mask) -> Select(0, -65504) -> Add(scores, .)
    """

    name = "compute-mask"

    def run(self, model: Model) -> Done | Skipped:
        mask = model.analysis(given_mask)
        if mask is None or MASK in model.graph.parameters:
            return Skipped("no input has the mask of every attention, or the model has attention_mask")
        name, shape = model.graph.producer(mask).name, mask.shape or (None,) * 4
        rewriter = model.rewriter()
        rewriter.input(MASK, "i64", [shape[0], shape[3]])
        rewriter.finish()
        rewriter, mask = model.rewriter(), model.graph.parameters[name]
        write, visible = rewriter.under(name), StepBuilder(model, rewriter).visible
        if mask.element_type != "boolean":
            added, lowest = (write.number(number, mask.element_type) for number in (0.0, MASKED))
            visible = write.op("Select", visible, added, lowest, label="computed")
        for use in model.graph.uses(mask):
            rewriter.redirect(use.node, use.port, visible)
        rewriter.finish()
        rewriter = model.rewriter()
        rewriter.drop_input(name)
        rewriter.finish()
        return Done({"inputs computed": 1})
