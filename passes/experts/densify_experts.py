"""The pass `densify-experts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import integers, named, redirect, scalar
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.constants import fold_scalar
from graphpass.ir.operators import LAYOUT, SPLITS
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.graph import Graph, Node, Value

__all__ = ["DensifyExperts"]

#: Operators whose rows depend on the same rows of what they are given, and operators on sizes.
_BY_ROWS = LAYOUT | SPLITS | {
    "Add", "Clamp", "Concat", "Divide", "Elu", "Gather", "Gelu", "HSwish", "Maximum", "Minimum", "Multiply", "Relu",
    "ShapeOf", "Sigmoid", "SoftPlus", "Subtract", "Swish", "Tanh",
}  # fmt: skip


@dataclass(frozen=True)
class DensifyExperts(Pass[OpenVINOModel]):
    """Let each expert compute all tokens, and take no more of the results than were routed to it.

    Exporters trace experts as PyTorch runs them: each gathers the tokens that are routed to it, whose number is known
    only then. A runtime of static shapes such as NPUW refuses that. Here each computes every row, and rows that are not
    its own are set to 0 before they are added up. That costs as many times more products as there are experts for each
    that is chosen. `batch-experts` makes one product of all experts where it knows their form; this is for the others,
    and looks at nothing but where rows are taken from and written to.

    Shapes:
        routing ``[experts, slots, tokens]`` or ``[experts, tokens, slots]``; rows ``[tokens, hidden]``

    Before:
        NonZero(tokens of the expert) -> Gather(rows) -> expert -> ScatterElementsUpdate
    After:
        each token once -> Gather(rows) -> expert -> Select(routed to it, ., 0) -> ScatterElementsUpdate
    """

    name: ClassVar[str] = "densify-experts"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        graph = model.graph
        experts = [found for node in graph.of_op("NonZero") if (found := _routed(graph, node)) is not None]
        if not experts:
            return Unchanged()
        for expert in experts:
            _compute_all_tokens(expert)
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"experts": len(experts)})


@dataclass(frozen=True)
class _Expert:
    """An expert that gathers its tokens.

    Attributes:
        chosen: The NonZero.
        tokens: Which axis of what it is given counts tokens.
        scatters: Where its results are written.
    """

    chosen: Node
    tokens: int
    scatters: tuple[Node, ...]


def _routed(graph: Graph, chosen: Node) -> _Expert | None:
    """The expert whose tokens ``chosen`` finds, where each is found once and its results are added up."""
    mask = chosen.inputs[0]
    if mask is None or mask.shape is None or len(mask.shape) != 2 or not _is_one_hot(graph, mask):
        return None
    fixed = [isinstance(size, int) for size in mask.shape]
    if sum(fixed) != 1:
        return None
    tokens = fixed.index(False)
    region, scatters = {chosen.index}, []
    pending = [chosen]
    while pending:
        for output in pending.pop().outputs:
            for use in graph.uses(output):
                node = use.node
                if node.op == "ScatterElementsUpdate" and use.port in {1, 2}:
                    scatters.append(node)
                elif node.op not in _BY_ROWS and not (node.op == "MatMul" and use.port == 0):
                    return None
                elif node.index not in region:
                    region.add(node.index)
                    pending.append(node)
    unique = {node.index: node for node in scatters}
    writes = all(_adds_up(graph, node, chosen, tokens) for node in unique.values())
    return _Expert(chosen, tokens, tuple(unique.values())) if unique and writes else None


def _is_one_hot(graph: Graph, mask: Value) -> bool:
    """Whether ``mask`` marks one expert's place among those that a TopK chose, which are different ones."""
    value: Value | None = mask
    is_marked = False
    while value is not None:
        node = graph.producer(value)
        if node.op == "TopK":
            return is_marked and value.port == 1
        is_marked |= node.op == "OneHot"
        if node.op not in LAYOUT | {"Gather", "OneHot"}:
            return False
        value = node.inputs[0]
    return False


def _adds_up(graph: Graph, scatter: Node, chosen: Node, tokens: int) -> bool:
    """Whether ``scatter`` writes rows where ``chosen`` found them, so that rows of 0 change nothing."""
    data, index = scatter.inputs[0], scatter.inputs[1]
    if data is None or index is None or fold_scalar(graph, scatter.inputs[3]) != 0:
        return False
    reduction = scatter.native.get_attributes().get("reduction", "none")
    filled = graph.producer(data)
    is_empty = filled.op == "Broadcast" and fold_scalar(graph, filled.inputs[0]) == 0
    if reduction != "sum" and not (reduction == "none" and is_empty):
        return False
    value = graph.look_through(index, LAYOUT)
    split = graph.producer(value)
    if split.op not in SPLITS or value.port != tokens:
        return False
    return graph.look_through(split.source(), {"Transpose"}).node == chosen.index


def _compute_all_tokens(expert: _Expert) -> None:
    from openvino import opset13

    name = f"{expert.chosen.name}/all"
    mask = opset13.convert(expert.chosen.native.input_value(0), "i64")
    slots, count = 1 - expert.tokens, mask.get_output_partial_shape(0)[1 - expert.tokens].get_length()
    zero, one, axis = integers(0, f"{name}/0"), integers(1, f"{name}/1"), integers([slots], f"{name}/slots")
    places = integers(range(count), f"{name}/places")
    laid_out = opset13.unsqueeze(places, integers([expert.tokens], f"{name}/tokens"))
    slot = opset13.reduce_sum(opset13.multiply(mask, laid_out), axis, False)
    size = opset13.gather(opset13.shape_of(mask, "i64"), integers(expert.tokens, f"{name}/axis"), zero)
    token = opset13.range(zero, size, one, "i64")
    first = integers([0], f"{name}/first")
    rows = [opset13.unsqueeze(row, first) for row in ((slot, token) if slots == 0 else (token, slot))]
    found = named(opset13.concat(rows, 0), name)
    redirect(expert.chosen.native.output(0), _as_type(found, expert.chosen.outputs[0].element_type).output(0))
    is_own = named(opset13.convert(opset13.reduce_max(mask, axis, False), "boolean"), f"{name}/is_own")
    column = opset13.unsqueeze(is_own, integers([1], f"{name}/column"))
    for scatter in expert.scatters:
        updates = scatter.native.input_value(2)
        nothing = scalar(0.0, updates.get_element_type(), f"{name}/nothing")
        own = named(opset13.select(column, updates, nothing), f"{scatter.name}/own")
        scatter.native.input(2).replace_source_output(own.output(0))


def _as_type(node: openvino.Node, element_type: str) -> openvino.Node:
    from openvino import opset13

    return node if element_type == "i64" else opset13.convert(node, element_type)
