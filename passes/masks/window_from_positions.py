"""The pass `window-from-positions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.masks.window import WindowMask, read_mask
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import find_input, has_input, input_length, integers, named
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.operators import KEEPS_ORDER
from graphpass.ir.types import Dialect
from graphpass.passes.masks.window_mask import write_mask

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.graph import Graph, Node, Value

__all__ = ["WindowFromPositions", "compares_positions"]

_KEYS, _QUERIES = "window/key_positions", "window/query_positions"


@dataclass(frozen=True)
class WindowFromPositions(Pass[OpenVINOModel]):
    """Let sliding windows count positions of tokens, not places in the cache.

    A cache may hold positions that no longer count: rejected drafts, masked out with ``attention_mask`` instead of
    being dropped, or the branches of a draft tree side by side. Exported masks compare places in the cache, so that
    such positions use up a part of the window. Behind this pass a key of the past stands where the running sum of
    ``attention_mask`` puts it, and a new token where ``position_ids`` does. Everything else in the mask stays, the
    causal condition between places, too.

    The mask is written in the form of `expose-window`; the CPU plugin goes on fusing what it fuses.

    Shapes:
        attention_mask i64 ``[batch, sequence]``, position_ids i64 ``[batch, length]``; mask ``[batch, 1, length,
        sequence]``

    Before:
        Greater(place of the key, place of the query - window) -> .. -> Select -> ScaledDotProductAttention
    After:
        Greater(Concat(CumSum(attention_mask)[: past] - 1, position_ids), position_ids - window) -> .. -> Select
        -> ScaledDotProductAttention

    Raises:
        PreconditionError: GP361 no input position_ids; GP364 no input attention_mask ``[batch, sequence]``.
        UnsupportedError: GP364 a window that is not a comparison of positions in a mask of
            ``ScaledDotProductAttention``, or that the cache itself keeps.
    """

    name: ClassVar[str] = "window-from-positions"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        graph, native = model.graph, model.ov_model
        masks = _windows(model)
        if not masks:
            return Unchanged()
        _check_inputs(native)
        compared = _positions(native)
        rebuilt: dict[WindowMask, openvino.Node] = {}
        for node, mask in masks:
            if mask not in rebuilt:
                rebuilt[mask] = write_mask(mask, f"{node.name}/position_window", graph, compared)
            node.native.input(3).replace_source_output(rebuilt[mask].output(0))
        native.validate_nodes_and_infer_types()
        return Changed(model, {"windows from positions": len(masks), "masks": len(rebuilt)})


def compares_positions(graph: Graph, mask: WindowMask) -> bool:
    """Whether ``mask`` compares positions of tokens, as this pass writes it, not places in the cache."""
    keys, queries = _source(graph, mask.keys), _source(graph, mask.queries)
    last = keys.inputs[-1] if keys.op == "Concat" else None
    return queries.op == "Parameter" and last is not None and _source(graph, last) == queries


def _source(graph: Graph, value: Value) -> Node:
    return graph.producer(graph.look_through(value, KEEPS_ORDER))


def _windows(model: OpenVINOModel) -> list[tuple[Node, WindowMask]]:
    """The attentions whose windows count places in the cache, and their masks."""
    graph = model.graph
    nodes = {node.name: node for node in graph.nodes}
    found = []
    for block in analyze_caches(model).attention:
        if block.window is None and block.window_in is None:
            continue
        node = nodes.get(block.node)
        mask = read_mask(graph, node.inputs[3]) if node is not None and _takes_mask(node) else None
        if node is None or mask is None or block.window_in == "state":
            reason = "the cache keeps no more than the window" if block.window_in == "state" else "it is no comparison"
            hint = None
            if block.form == "decomposed":
                hint = "run fuse-attention before it" if block.fusable else f"fuse-attention leaves it: {block.reason}"
            raise UnsupportedError(
                "GP364", f"the window of attention {block.node} cannot be taken from positions: {reason}", hint
            )
        if not compares_positions(graph, mask):
            found.append((node, mask))
    return found


def _takes_mask(node: Node) -> bool:
    return node.op == "ScaledDotProductAttention" and len(node.inputs) > 3


def _check_inputs(native: openvino.Model) -> None:
    if not has_input(native, "position_ids"):
        raise PreconditionError(
            "GP361", "the model has no input position_ids that tells positions", "run expose-position-ids before it"
        )
    if not has_input(native, "attention_mask") or len(find_input(native, "attention_mask").get_partial_shape()) != 2:
        raise PreconditionError(
            "GP364", "the model has no input attention_mask [batch, sequence] from which positions could be counted"
        )


def _positions(native: openvino.Model) -> tuple[openvino.Output, openvino.Output]:
    """Positions of the keys ``[batch, 1, 1, sequence]``, and of the queries, ``[batch, 1, length, 1]``, i64."""
    from openvino import opset13

    tokens, seen = (_as_i64(find_input(native, name)) for name in ("position_ids", "attention_mask"))
    new = input_length(native, "position_ids", f"{_KEYS}/new")
    counted = named(opset13.cumsum(seen, integers(1, f"{_KEYS}/axis")), f"{_KEYS}/counted")
    places = named(opset13.subtract(counted, integers(1, f"{_KEYS}/one")), f"{_KEYS}/counted_from_0")
    whole = input_length(native, "attention_mask", f"{_KEYS}/whole")
    bounds = [
        integers([0], f"{_KEYS}/start"),
        named(opset13.subtract(whole, new), f"{_KEYS}/past"),
        integers([1], f"{_KEYS}/step"),
        integers([1], f"{_KEYS}/columns"),
    ]
    past = named(opset13.slice(places, *bounds), f"{_KEYS}/of_past")
    joined = named(opset13.concat([past, tokens], 1), f"{_KEYS}/joined")
    keys = named(opset13.unsqueeze(joined, integers([1, 2], f"{_KEYS}/rows")), _KEYS)
    queries = named(opset13.unsqueeze(tokens, integers([1, 3], f"{_QUERIES}/columns")), _QUERIES)
    return keys.output(0), queries.output(0)


def _as_i64(node: openvino.Node) -> openvino.Node:
    from openvino import opset13

    if node.get_output_element_type(0).to_string() == "i64":
        return node
    return named(opset13.convert(node, "i64"), f"{_KEYS}/{node.get_friendly_name()}")
