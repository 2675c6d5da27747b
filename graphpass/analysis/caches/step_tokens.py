"""Find the tokens of one step, and whether padding among them enters states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.caches.packed import flat_caches
from graphpass.analysis.caches.states import shifted_in
from graphpass.analysis.symbolic.folding import starts_at_first
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, KEEPS_ORDER, NEW_TOKENS, SHAPE_READERS, SOURCES
from graphpass.ir.types import is_fixed
from graphpass.ir.values import fixed_size

#: Through attention a mask hides padding from other positions, and its size is not a mask.
_NO_WAY = SHAPE_READERS | {"ScaledDotProductAttention", "Softmax"}

#: Places of ``write_indices`` and ``nonpad_kv_seqlen``, see ONNX's TensorScatter and Attention of opset 24.
_START, _IN_USE = 2, 6


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The tokens that a model takes at one step.

    Attributes:
        one_by_one: It takes one token after a past: a window rolls by one column, and only the last token enters it.
        rows_one_by_one: It takes several tokens after a past for one sequence only, as ONNX Runtime's
            GroupQueryAttention without their number as an input (group_query_attention_helper.h).
        masks_new_tokens: ``attention_mask`` stands for new tokens only: it weighs their hidden states as it is.
        packed_windows: Columns of the windows of convolutions that lie in flat caches.
        passed_on: Inputs of fixed size that become outputs unchanged, or that nothing reads.
        returned: These outputs, and those that are the same whatever is fed.
        starts: Inputs that hold, for each row, the place in the cache of its first new token.
        totals: Inputs that hold, for each row, the number of positions with the new ones.
    """

    one_by_one: bool = False
    rows_one_by_one: bool = False
    masks_new_tokens: bool = False
    packed_windows: frozenset[int] = frozenset()
    passed_on: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    starts: frozenset[str] = frozenset()
    totals: frozenset[str] = frozenset()


def find_step_tokens(model: Model, inventory: Inventory) -> StepTokens:
    """Return the tokens that ``model`` takes at one step."""
    graph = model.graph
    packed = [
        (state.sizes[-1], past)
        for flat in flat_caches(model, inventory).values()
        for state in flat.states
        for past in state.pasts
    ]
    linear = {cache.read for cache in inventory.of_kind("linear")}
    pasts = [node.outputs[0] for node in graph.of_op(*SOURCES) if node.name in linear]
    pasts += [past for _, past in packed]
    rolls = [shifted_in(graph, past, in_loops=False) for past in pasts]
    passed_on = dict(_passed_on(graph))
    return StepTokens(
        one_by_one=any(node is not None and node.op == "Roll" for node in rolls),
        rows_one_by_one=model.dialect == "onnx"
        and any(node.input(NEW_TOKENS) is None for node in graph.of_op("GroupQueryAttention")),
        masks_new_tokens=bool(linear) and any(True for _ in weighs_new_tokens(graph)),
        packed_windows=frozenset(size for size, past in packed if shifted_in(graph, past)),
        passed_on=frozenset(passed_on),
        returned=constant_outputs(graph).union(*passed_on.values()),
        starts=_fed_to(graph, "TensorScatter", _START),
        totals=_fed_to(graph, "Attention", _IN_USE),
    )


def _fed_to(graph: Graph, op: str, port: int) -> frozenset[str]:
    values = [graph.look_through(value, CASTS) for node in graph.of_op(op) if (value := node.input(port)) is not None]
    return frozenset(node.name for node in map(graph.producer, values) if node.op == "Parameter")


def _passed_on(graph: Graph) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, value in graph.parameters.items():
        if not is_fixed(value.shape):
            continue
        reached = [
            use.node for use in graph.forward([value], lambda use: use.node.outputs if use.node.op in CASTS else ())
        ]
        if all(node.op in CASTS | {"Result"} for node in reached):
            yield name, tuple(node.name for node in reached if node.op == "Result")


def constant_outputs(graph: Graph) -> frozenset[str]:
    """Return the outputs that depend on no input and no variable."""
    fed: set[int] = set()
    for node in graph.nodes:
        if node.op in SOURCES or any(value.node in fed for value in node.sources):
            fed.add(node.index)
    return frozenset(node.name for node in graph.of_op("Result") if node.index not in fed)


def weighs_new_tokens(graph: Graph) -> Iterator[Node]:
    """Yield the products of hidden states ``[batch, length, hidden]`` with the first columns of ``attention_mask``."""
    masks = [node.outputs[0] for node in graph.of_op("Parameter") if node.name == "attention_mask"]

    def first_columns(node: Node) -> bool:
        # The first columns are the past's in a mask over past and new tokens; the last are the new tokens'.
        return node.op in KEEPS_ORDER or starts_at_first(graph, node)

    for use in graph.forward(masks, lambda use: use.node.outputs if use.port == 0 and first_columns(use.node) else ()):
        if use.node.op == "Multiply":
            mask, other = use.node.source(use.port), use.node.source(1 - use.port)
            hidden = fixed_size(other, -1) if other.rank == 3 else None
            if mask.rank == 3 and fixed_size(mask, -1) == 1 and hidden is not None and hidden > 1:
                yield use.node


def absorbs_padding(model: Model, cache: Cache) -> bool:
    """Return whether ``attention_mask`` reaches new content of a linear ``cache`` through attention alone."""
    return cache.write not in model.analysis(_masked_writes)


def absorbs_attention(model: Model, cache: Cache) -> bool:
    """Return whether a linear ``cache`` of ``model`` is computed from a result of attention."""
    graph = model.graph
    attention = {block.node.index for block in model.analysis(find_attention)}
    written = graph.writes[cache.write].inputs[:1]
    return any(node.index in attention for node in graph.backward(written, lambda node: node.inputs))


def _masked_writes(model: Model) -> set[str]:
    masks = [node.outputs[0] for node in model.graph.of_op("Parameter") if node.name == "attention_mask"]
    reached = model.graph.forward(masks, lambda use: () if use.node.op in _NO_WAY else use.node.outputs)
    return {use.node.name for use in reached if use.node.op in {"Assign", "Result"}}
