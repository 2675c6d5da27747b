"""The pass `lower-boolean-masks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import named, output_of, scalar
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.operators import LAYOUT, SLICES
from graphpass.ir.types import Dialect
from graphpass.ir.values import MASKED

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.graph import Graph, Value

__all__ = ["LowerBooleanMasks"]

#: Operators that lay out a mask, or take a part of it.
_LAYOUT = LAYOUT | SLICES


@dataclass(frozen=True)
class LowerBooleanMasks(Pass[OpenVINOModel]):
    """Write masks of attention that give NaN for a row of padding as numbers that f16 holds.

    Where a boolean mask hides all positions of a row, as it does for padding, the decomposition in OpenVINO's common
    transformations gives NaN, which spreads to what is not padding. NPUW always decomposes. A number is as good as the
    lowest beside any other score, and leaves a row that is masked whole finite. So does the lowest of f16, in which
    NPUW computes, where attention is decomposed and hides positions by the lowest number of f32, which is infinite
    there. (`fuse-attention` bounds the masks of what it fuses.)

    Shapes:
        mask broadcastable to ``[batch, heads, length, sequence]``, of the query's type after the pass.

    Before:
        mask (boolean) -> ScaledDotProductAttention
    After:
        mask -> Select(., 0, -65504) -> ScaledDotProductAttention

    Before:
        Select(., 0, -3.4e38) -> Slice, .. -> Add(scores, .) -> Softmax
    After:
        Select(., 0, -3.4e38) -> Slice, .. -> Maximum(., -65504) -> Add(scores, .) -> Softmax
    """

    name: ClassVar[str] = "lower-boolean-masks"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        fused, decomposed = _lower_boolean(model.graph), _bound_numbers(model.graph)
        if not fused and not decomposed:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        counts = {"attention": fused[0], "masks": fused[1]} if fused else {}
        return Changed(model, counts | ({"masks bounded": decomposed} if decomposed else {}))


def _lower_boolean(graph: Graph) -> tuple[int, int] | None:
    """Lower boolean masks of fused attention; of how many operators, and how many masks, where there are any."""
    from openvino import opset13

    made: dict[tuple[str, int, str], openvino.Node] = {}
    count = 0
    for node in graph.of_op("ScaledDotProductAttention"):
        attention = node.native
        if attention.get_input_size() < 4 or attention.get_input_element_type(3).to_string() != "boolean":
            continue
        mask, wanted = attention.input_value(3), attention.get_input_element_type(0)
        key = (mask.get_node().get_name(), mask.get_index(), wanted.to_string())
        if key not in made:
            name = f"{node.name}/mask"
            branches = [scalar(value, wanted, f"{name}/{told}") for value, told in ((0.0, "seen"), (MASKED, "hidden"))]
            made[key] = named(opset13.select(mask, *branches), name)
        attention.input(3).replace_source_output(made[key].output(0))
        count += 1
    return (count, len(made)) if count else None


def _bound_numbers(graph: Graph) -> int:
    """Bound masks that are added to the scores of decomposed attention; how many."""
    from openvino import opset13

    made: dict[Value, openvino.Node] = {}
    for softmax in graph.of_op("Softmax"):
        assert softmax.inputs[0] is not None
        total = graph.producer(softmax.inputs[0])
        for port, mask in enumerate(total.inputs if total.op == "Add" else ()):
            if mask is None or not _hides_by_more_than_f16(graph, mask):
                continue
            if mask not in made:
                output = output_of(graph, mask)
                name = f"{graph.producer(mask).name}/bounded"
                lowest = scalar(MASKED, output.get_element_type(), f"{name}/lowest")
                made[mask] = named(opset13.maximum(output, lowest), name)
            total.native.input(port).replace_source_output(made[mask].output(0))
    return len(made)


def _hides_by_more_than_f16(graph: Graph, mask: Value) -> bool:
    """Whether it is chosen between numbers of which one is lower than what f16 holds."""
    node = graph.producer(mask)
    while node.op in _LAYOUT and node.inputs[0] is not None:
        node = graph.producer(node.inputs[0])
    branches = [graph.constant(branch) for branch in node.inputs[1:]] if node.op == "Select" else []
    return any(branch is not None and bool((branch < MASKED).any()) for branch in branches)
