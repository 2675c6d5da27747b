"""The pass `grow-caches`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.types import Dimension
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle
from graphpass.passes.caches.counted_slots import find_counted_slots, grow

_QUERY, _KEY, _VALUE, _MASK, _LENGTHS = 0, 1, 2, 3, 6
_PAST, _NEW, _START = range(3)


@dataclass(frozen=True)
class GrowCaches(Pass[Model]):
    """Replace caches of fixed capacity by growing caches: the inverse of `static-cache`.

    Runtimes that manage caches themselves require growing caches. Two forms are supported:

    - Models with a shared buffer as past and present (mobius with a static cache) write new positions by TensorScatter;
      ONNX's Attention reads the number of positions in use.
    - transformers' StaticCache scatters new positions to the slots from an input on that counts the past, and the mask
      hides later slots. The count is computed from the other inputs instead, and masks are written for positions.

    Shapes:
        cache ``[batch, capacity, heads * head_dim]`` or ``[batch, heads, capacity, head_dim]``; afterwards
        ``[batch, heads, past, head_dim]``. With TensorScatter, attention_mask i64 ``[batch, total]`` is a new input,
        which replaces the number of positions of each row.

    Before:
        TensorScatter(past, key, start) = present -> Attention(query, ., value, number of positions), causal;
        ScatterElementsUpdate(past, count + Range(0, length), key) = present -> attention(query, ., value, mask)
    After:
        result, present = Attention(query, key, value, attention_mask, past), causal;
        Concat(past, key) = present -> attention(query, ., value, mask)
    """

    name = "grow-caches"

    def run(self, model: Model) -> Done | Skipped:
        slots = find_counted_slots(model)
        if slots is not None:
            rewriter = model.rewriter()
            grow(model, rewriter, slots)
            rewriter.finish()
            rewriter = model.rewriter()
            for name in slots.counters:
                rewriter.drop_input(name)
            rewriter.finish()
            return Done({"caches grown": len(slots.caches)})
        nodes = written_in_place(model)
        if not nodes:
            return Skipped("no attention reads caches that are written in place at counted slots")
        graph, rewriter = model.graph, model.rewriter()
        counters = {str(graph.producer(value).name) for node in nodes for value in _counters(graph, node)}
        tokens = token_input(graph)
        if tokens is None:
            return Skipped("the model has no input of tokens")
        batch = tokens.shape[0] if tokens.shape else None
        write = rewriter.under("attention_mask")
        mask = rewriter.input("attention_mask", "i64", [batch, "total_length"])
        keys = write.op("Unsqueeze", write.convert(mask, "boolean"), axes=[1, 2])
        # ONNX Runtime (1.32) does not broadcast the mask along queries.
        seen = write.op(
            "Broadcast", keys, write.op("Concat", [1, 1], write.size(tokens, 1), [1], axis=0), mode="bidirectional"
        )
        for node in nodes:
            _grow(graph, rewriter, node, batch, seen)
        rewriter.finish()
        rewriter = model.rewriter()
        for name in sorted(counters):
            rewriter.drop_input(name)
        rewriter.finish()
        return Done({"caches grown": 2 * len(nodes)})


def written_in_place(model: Model) -> list[Node]:
    """Return causal attention over caches of fixed capacity; empty if the model has other caches."""
    graph = model.graph
    nodes = [node for node in graph.of_op("Attention") if _fits(graph, node)]
    caches = {cache.write for cache in analyze_caches(model).caches}
    scatters = [_scatter(graph, node, port) for node in nodes for port in (_KEY, _VALUE)]
    written = {
        use.node.name for scatter in scatters for use in graph.uses(scatter.outputs[0]) if use.node.op == "Result"
    }
    counted = {value for node in nodes for value in _counters(graph, node)}
    users = {use.node.index for value in counted for use in graph.uses(value)}
    known = {node.index for node in (*nodes, *scatters)}
    is_whole = written == caches and users <= known and "attention_mask" not in graph.parameters
    return nodes if is_whole else []


def _fits(graph: Graph, node: Node) -> bool:
    if node.input(_LENGTHS) is None or node.input(_MASK) is not None or not node.attributes.get("is_causal"):
        return False
    if len(node.outputs) != 1 or not all(graph.producer(value).op == "Parameter" for value in _counters(graph, node)):
        return False
    for port in (_KEY, _VALUE):
        scatter = _scatter(graph, node, port)
        is_linear = scatter.op == "TensorScatter" and scatter.attributes.get("mode", "linear") in {"linear", b"linear"}
        users = {use.node.op for use in graph.uses(scatter.outputs[0])}
        if not is_linear or graph.producer(scatter.source()).op != "Parameter" or users != {"Attention", "Result"}:
            return False
    return True


def _scatter(graph: Graph, node: Node, port: int) -> Node:
    return graph.producer(node.source(port))


def _counters(graph: Graph, node: Node) -> list[Value]:
    """Return the number of positions in use, and the slots of the new positions."""
    scatters = [_scatter(graph, node, port) for port in (_KEY, _VALUE)]
    counters = [node.input(_LENGTHS), *(scatter.input(_START) for scatter in scatters if scatter.op == "TensorScatter")]
    return [value for value in counters if value is not None]


def _grow(graph: Graph, rewriter: Rewriter, node: Node, batch: Dimension, seen: Handle) -> None:
    write = rewriter.under(node.name)
    scatters = [_scatter(graph, node, port) for port in (_KEY, _VALUE)]
    ports = [_ports(graph, scatter) for scatter in scatters]
    shapes = [_grown(node, scatter, batch) for scatter in scatters]
    types = [scatter.outputs[0].element_type for scatter in scatters]
    news = [scatter.source(_NEW) for scatter in scatters]
    rewriter.drop([port for pair in ports for port in pair])
    pasts = [
        rewriter.input(read.name, kind, shape) for (read, _), kind, shape in zip(ports, types, shapes, strict=True)
    ]
    operands = (node.source(_QUERY), *news, seen, *pasts)
    made = write.outputs("Attention", *operands, count=3, label="attention", **node.attributes)
    rewriter.replace(node.outputs[0], made[0])
    for (_, written), present, kind, shape in zip(ports, made[1:], types, shapes, strict=True):
        rewriter.output(written.name, present, kind, [*shape[:2], "total_length", shape[3]])


def _ports(graph: Graph, scatter: Node) -> tuple[Node, Node]:
    results = [use.node for use in graph.uses(scatter.outputs[0]) if use.node.op == "Result"]
    return graph.producer(scatter.source(_PAST)), results[0]


def _grown(node: Node, scatter: Node, batch: Dimension) -> list[Dimension]:
    past = scatter.source(_PAST)
    if past.rank == 4:
        return [batch, fixed_size(past, 1), "past_length", fixed_size(past, 3)]
    heads = node.attributes["kv_num_heads"]
    return [batch, heads, "past_length", (fixed_size(past, 2) or 0) // heads or None]
