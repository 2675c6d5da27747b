"""The pass `drop-constant-outputs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.analysis.caches.step_tokens import unread_outputs
from graphpass.engine.passes import Done, Pass
from graphpass.ir.model import Model


@dataclass(frozen=True)
class DropConstantOutputs(Pass[Model]):
    """Drop outputs that do not depend on an input.

    Exporters return settings that they carry from step to step, such as the size of a window. NPUW (2026.4.1) fails
    with ``unordered_map::at`` if an output does not depend on an input. Tables of a draft's token ids stay: as many
    integers as there are logits.

    Before:
        Constant -> Result
    After:
        the output is removed
    """

    name: ClassVar[str] = "drop-constant-outputs"

    def run(self, model: Model) -> Done:
        names, rewriter = unread_outputs(model), model.rewriter()
        rewriter.drop([node for node in model.graph.of_op("Result") if node.name in names])
        rewriter.finish()
        return Done({"outputs dropped": len(names)} if names else {})
