"""The pass `insert-position-ids`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.analysis.attention.rotary import positions_of_angles
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import add_input, has_input
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
from graphpass.ir.types import Dialect

__all__ = ["InsertPositionIds"]


@dataclass(frozen=True)
class InsertPositionIds(Pass[OpenVINOModel]):
    """Give a model that needs no positions the input `position_ids` all the same, which nothing reads.

    NPUW feeds the input, whatever the model has, and fails with ``unordered_map::at`` where it is missing
    (``llm_infer_request.cpp``). Models with ALiBi count positions from attention_mask, some hybrids need none, and both
    go on doing so. A model that counts positions of its own for an embedding wants `expose-position-ids` before.

    Shapes:
        position_ids i64 ``[batch, length]``

    Before:
        input_ids, attention_mask, beam_idx
    After:
        input_ids, attention_mask, beam_idx, position_ids
    """

    name: ClassVar[str] = "insert-position-ids"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        if has_input(model.ov_model, "position_ids"):
            return Skipped("the model has an input position_ids")
        if any(node.op == "Range" for node in positions_of_angles(model.graph)):
            return Skipped("the model counts positions itself, and an input that nothing reads would hide that")
        add_input(model.ov_model, "position_ids", "i64", [-1, -1])
        return Changed(model, {"inputs": 1})
