"""Read decoders for the first step, which compute caches of cross attention."""

from __future__ import annotations

from typing import Any

from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Pass
from graphpass.ir.graph import Node
from graphpass.ir.inputs import BRANCH, is_merged
from graphpass.ir.model import Model
from graphpass.ir.values import REALS
from graphpass.passes.convert.select_branch import SelectBranch


def first_decoder(model: Model, further: tuple[Pass[Any], ...] = ()) -> Model:
    """Return the decoder for the first step, which computes the caches of cross attention.

    Args:
        model: The decoder; if it is merged, its branch without past is extracted.
        further: Passes to run afterwards.
    """
    passes = (SelectBranch(BRANCH, value=False), *further) if is_merged(model.graph) else further
    return PassManager(passes).run(model).model if passes else model


def is_states(parameter: Node) -> bool:
    """Return whether an input has the type of encoder states, real ``[batch, positions, hidden]``."""
    value = parameter.outputs[0]
    return value.rank == 3 and value.element_type in REALS
