"""The pass `lower-boolean-masks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.manager import Changed, Pass, PassResult, Unchanged
from graphpass.model import Dialect
from graphpass.openvino_model import OpenVINOModel
from graphpass.passes.fuse_attention import MASKED
from graphpass.rewrite import named, scalar

if TYPE_CHECKING:
    import openvino

__all__ = ["LowerBooleanMasks"]


@dataclass(frozen=True)
class LowerBooleanMasks(Pass[OpenVINOModel]):
    """Write boolean masks of attention as numbers that are added to the scores.

    Where a boolean mask hides all positions of a row, as it does for padding, the decomposition in OpenVINO's common
    transformations gives NaN, which spreads to what is not padding. NPUW always decomposes. A number is as good as the
    lowest beside any other score, and leaves a row that is masked whole finite.

    Shapes:
        mask broadcastable to ``[batch, heads, length, sequence]``, of the query's type after the pass.

    Before:
        mask (boolean) -> ScaledDotProductAttention
    After:
        mask -> Select(., 0, -65504) -> ScaledDotProductAttention
    """

    name: ClassVar[str] = "lower-boolean-masks"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        from openvino import opset13

        made: dict[tuple[str, int, str], openvino.Node] = {}
        count = 0
        for node in model.graph.of_op("ScaledDotProductAttention"):
            attention = node.native
            if attention.get_input_size() < 4 or attention.get_input_element_type(3).to_string() != "boolean":
                continue
            mask, wanted = attention.input_value(3), attention.get_input_element_type(0)
            key = (mask.get_node().get_name(), mask.get_index(), wanted.to_string())
            if key not in made:
                name = f"{node.name}/mask"
                branches = [
                    scalar(value, wanted, f"{name}/{told}") for value, told in ((0.0, "seen"), (MASKED, "hidden"))
                ]
                made[key] = named(opset13.select(mask, *branches), name)
            attention.input(3).replace_source_output(made[key].output(0))
            count += 1
        if not count:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"attention": count, "masks": len(made)})
