"""The pass `select-branch`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.branches import take_branches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError


@dataclass(frozen=True)
class SelectBranch(Pass[OnnxModel]):
    """Replace each If by one branch, if an input decides it; drop the input.

    Optimum merges a decoder for the first step and one for all others into one file, as the branches of an If, which no
    plugin of OpenVINO compiles (2026.4.1). The branch for all others computes the first step, too, from an empty past.
    Outputs that depend on no input are dropped: a branch only fills them in.

    Before:
        If(use_cache_branch){then: A -> present, else: B -> present}
    After:
        A -> present

    Attributes:
        input: The boolean input that decides.
        value: The value of that input whose branch is kept.

    Raises:
        PreconditionError: GP346, no If of the main graph is decided by the input alone.
    """

    name = "select-branch"
    dialect = "onnx"

    input: str = "use_cache_branch"
    value: bool = True

    def run(self, model: OnnxModel) -> Done:
        count, dropped = take_branches(model, self.input, self.value)
        if not count:
            reason = f"no If of the main graph is decided by input {self.input}"
            raise PreconditionError("GP346", reason, "name the input that selects the branch")
        return Done({"branches taken": count, "outputs dropped": dropped})
