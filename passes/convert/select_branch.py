"""The pass `select-branch`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.branches import take_branches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError


@dataclass(frozen=True)
class SelectBranch(Pass[OnnxModel]):
    """Replace each If whose condition is an input by one branch, and drop the input.

    Optimum merges a decoder for the first step and a decoder for later steps into one file, as the branches of an If.
    OpenVINO's plugins (2026.4.1) do not compile this If. The branch for later steps also computes the first step, with
    an empty past. Outputs that do not depend on an input, which a branch returns as placeholders, are dropped.

    Before:
        If(use_cache_branch){then: A -> present, else: B -> present}
    After:
        A -> present

    Attributes:
        input: The boolean input that is the condition.
        value: The value of the input whose branch is kept.

    Raises:
        PreconditionError: GP346, the input alone is not the condition of an If of the main graph.
    """

    name = "select-branch"
    dialect = "onnx"

    input: str = "use_cache_branch"
    value: bool = True

    def run(self, model: OnnxModel) -> Done:
        count, dropped = take_branches(model, self.input, self.value)
        if not count:
            reason = f"input {self.input} is not the condition of an If of the main graph"
            raise PreconditionError("GP346", reason, "name the input that selects the branch")
        return Done({"branches taken": count, "outputs dropped": dropped})
