"""The pass `batch-experts`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import integers, named, redirect, scalar
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect
from graphpass.passes.experts.expert_layers import stored_weight
from graphpass.passes.experts.separate_experts import find_experts
from graphpass.passes.experts.sorted_experts import find_sorted_experts

if TYPE_CHECKING:
    import openvino

    from graphpass.passes.experts.expert_layers import ExpertLayer, Step

__all__ = ["BatchExperts"]

#: What finds a layer, by the operator that it starts at.
_FINDERS = {"OneHot": find_experts, "TopK": find_sorted_experts}


@dataclass(frozen=True)
class BatchExperts(Pass[OpenVINOModel]):
    """Make one product of all experts of a layer that are computed one by one.

    Exporters that trace a loop over experts write for each of them the search for its tokens, its products, and the sum
    into what came before. Others sort the tokens by expert, and cut them into a piece for each. Written as one product,
    with a weight for each pair of token and expert, the CPU plugin makes a kernel of it that computes only the experts
    that were chosen. Weights stay where they are: plugins join them when they compile a model.

    Shapes:
        tokens ``[tokens, hidden]``, chosen experts and their weights ``[tokens, k]``; the weights of all experts are
        constants of one shape and type.

    Before:
        for each expert: NonZero(OneHot(chosen)[expert]) -> Gather(tokens) -> MatMul, .. -> Multiply(., weights) ->
        ScatterElementsUpdate -> Add; or
        Gather(tokens, TopK(chosen) / k) -> for each expert: Slice(as many as chose it) -> MatMul -> Concat, .. ->
        Multiply(., weights) -> ScatterElementsUpdate
    After:
        Tile(tokens) -> MatMul(., Concat(weights of all experts)), .. -> Multiply(., weights by expert) -> ReduceSum
    """

    name: ClassVar[str] = "batch-experts"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        layers = experts = 0
        for op in model.ov_model.get_ordered_ops():
            find = _FINDERS.get(op.get_type_name())
            layer = None if find is None else find(op)
            if layer is not None:
                redirect(layer.total, _joined(layer, op.get_friendly_name()))
                layers += 1
                experts += len(layer.bodies)
        if not layers:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"layers": layers, "experts joined": experts})


def _joined(layer: ExpertLayer, prefix: str) -> openvino.Output:
    """The same sum in the form in which plugins know it."""
    from openvino import opset13 as ops

    count, hidden = len(layer.bodies), layer.tokens.get_partial_shape()[1].get_length()
    write = _writer(f"{prefix}/joined")

    def numbers(values: int | list[int]) -> openvino.Node:
        return write("constant", integers(values, ""))

    def reshape(label: str, value: openvino.Node, *sizes: int | openvino.Node) -> openvino.Node:
        whole = ops.concat([numbers([size]) if isinstance(size, int) else size for size in sizes], 0)
        return write(label, ops.reshape(value, write("sizes", whole), special_zero=False))

    shape = write("shape", ops.shape_of(layer.chosen, "i64"))
    length = write("length", ops.gather(shape, numbers([0]), numbers(0)))
    tiled = write("tiled", ops.tile(layer.tokens, numbers([count, 1])))
    values = [reshape("tokens", tiled, count, length, hidden)]
    for place, step in enumerate(layer.bodies[0]):
        alike = [body[place] for body in layer.bodies]
        reads = [
            values[read + 1] if isinstance(read, int) else _stacked([one.reads[port] for one in alike], step, write)
            for port, read in enumerate(step.reads)
        ]
        values.append(write(step.node.get_type_name(), _again(step.node, reads)))
    results = reshape("results", values[-1], count, length, -1, hidden)
    zero = write("zero", scalar(0.0, layer.weights.get_element_type(), ""))
    everywhere = write("everywhere", ops.concat([length, numbers([count])], 0))
    none = write("none", ops.broadcast(zero, everywhere))
    gates = write("gates", ops.scatter_elements_update(none, layer.chosen, layer.weights, numbers(1)))
    by_expert = write("by_expert", ops.transpose(gates, numbers([1, 0])))
    gates = write("gates", ops.unsqueeze(reshape("by_expert", by_expert, count, length, -1), numbers(3)))
    weighted = write("weighted", ops.multiply(results, gates))
    total = write("total", ops.reduce_sum(weighted, numbers([0]), keep_dims=False))
    final: openvino.Output = reshape("total", total, length, hidden).output(0)
    return final


def _again(node: openvino.Node, inputs: list[openvino.Node]) -> openvino.Node:
    """What ``node`` computes, of other inputs; weights are turned, as fully connected layers have them."""
    from openvino.utils.node_factory import NodeFactory

    given = node.get_attributes()
    if node.get_type_name() == "MatMul":
        given = {"transpose_a": False, "transpose_b": True}
    made: openvino.Node = NodeFactory("opset13").create(node.get_type_name(), [one.output(0) for one in inputs], given)
    return made


def _stacked(weights: list[Any], step: Step, write: Callable[[str, openvino.Node], openvino.Node]) -> openvino.Node:
    """One constant for all experts: of a product ``[experts, outputs, inputs]``, else ``[experts, 1, outputs]``."""
    from openvino import opset13 as ops

    is_product = step.node.get_type_name() == "MatMul"
    turn = is_product and not step.node.get_attributes()["transpose_b"]
    parts = []
    for weight in weights:
        stored: openvino.Node = stored_weight(weight)
        part = write("turned", ops.transpose(stored, write("constant", integers([1, 0], "")))) if turn else stored
        front = write("constant", integers([0] if is_product else [0, 1], ""))
        parts.append(write("one", ops.unsqueeze(part, front)))
    whole = write("weights", ops.concat(parts, 0))
    wanted = weights[0].get_output_element_type(0)
    return whole if whole.get_output_element_type(0) == wanted else write("wide", ops.convert(whole, wanted))


def _writer(prefix: str) -> Callable[[str, openvino.Node], openvino.Node]:
    counts: dict[str, int] = {}

    def write(label: str, node: openvino.Node) -> openvino.Node:
        number = counts[label] = counts.get(label, -1) + 1
        return named(node, f"{prefix}/{label}" + (f"_{number}" if number else ""))

    return write
