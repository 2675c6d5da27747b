"""Determine the tokens that a step accepts, and whether padding enters states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.caches.counters import counter_candidates, find_counters
from graphpass.analysis.caches.kept_logits import kept_logits
from graphpass.analysis.caches.packed import flat_caches
from graphpass.analysis.caches.states import shifted_in
from graphpass.analysis.caches.step_lengths import step_elements
from graphpass.analysis.symbolic.folding import fold_scalar, starts_at_first
from graphpass.analysis.symbolic.hidden_size import row_size
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node
from graphpass.ir.inputs import TARGET_STATES, VISUAL_FEATURES
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, INNER_CACHES, KEEPS_ORDER, NEW_TOKENS, SHAPE_READERS, SOURCES
from graphpass.ir.types import is_fixed
from graphpass.ir.values import REALS, fixed_size

#: Operators after which a value is not a mask of padding: attention, which applies the mask, and shapes.
_NO_WAY = SHAPE_READERS | INNER_CACHES.keys() | {"ScaledDotProductAttention", "Softmax"}

#: Input indices of ``write_indices`` and ``nonpad_kv_seqlen``, see ONNX's TensorScatter and Attention of opset 24.
_START, _IN_USE = 2, 6


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The tokens that a model accepts in one step, and related inputs and outputs.

    Attributes:
        one_by_one: Whether a step with a past accepts one token only, because a window rolls by one column per step.
        rows_one_by_one: Whether a step with a past and several tokens accepts one row only, as ONNX Runtime's
            GroupQueryAttention without the input of new tokens per row (group_query_attention_helper.h).
        masks_new_tokens: Whether ``attention_mask`` covers only new tokens, because it multiplies their hidden states.
        packed_windows: Numbers of columns of convolution windows in flat caches.
        passed_on: Inputs of fixed shape that are returned unchanged as outputs, or have no users.
        kept: Inputs with the number of last tokens whose logits are computed; 0 keeps all.
        returned: Outputs that return inputs of ``passed_on``, and outputs that depend on no input or variable.
        starts: Inputs with the slot of the first new token of each row, ``[batch]``.
        totals: Inputs with the number of positions of each row, new tokens included, ``[batch]``.
        counters: Inputs with the number of positions before the step, which outputs of ``returned`` return after it.
        levels: Number of features of each token of an image, besides its embedding.
        states: Number of elements of a target's states that a draft reads with each token id.
    """

    one_by_one: bool = False
    rows_one_by_one: bool = False
    masks_new_tokens: bool = False
    packed_windows: frozenset[int] = frozenset()
    passed_on: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    starts: frozenset[str] = frozenset()
    totals: frozenset[str] = frozenset()
    counters: frozenset[str] = frozenset()
    levels: int = 0
    states: int = 0


def find_step_tokens(model: Model, inventory: Inventory) -> StepTokens:
    """Return the tokens that ``model`` accepts in one step.

    Args:
        model: The model.
        inventory: Its caches; windows of ``linear`` caches may limit a step to one token.
    """
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
    counters = find_counters(step_elements(model, inventory.caches)) if counter_candidates(graph) else {}
    counts = [result.name for results in counters.values() for result in results]
    return StepTokens(
        one_by_one=any(node is not None and node.op == "Roll" for node in rolls),
        rows_one_by_one=model.dialect == "onnx"
        and any(node.input(NEW_TOKENS) is None for node in graph.of_op("GroupQueryAttention")),
        masks_new_tokens=bool(linear) and any(True for _ in weighs_new_tokens(graph)),
        packed_windows=frozenset(size for size, past in packed if shifted_in(graph, past)),
        passed_on=frozenset(passed_on),
        kept=kept_logits(graph),
        returned=constant_outputs(graph).union(counts, *passed_on.values()),
        starts=_fed_to(graph, "TensorScatter", _START),
        totals=_fed_to(graph, "Attention", _IN_USE),
        counters=frozenset(counters),
        levels=visual_levels(graph),
        states=row_size(model, TARGET_STATES) or 0,
    )


def visual_levels(graph: Graph) -> int:
    """Return the number of visual features that layers gather from the first axis of ``deepstack_visual_embeds``.

    Args:
        graph: A graph.

    Returns:
        The number; 0 if the input is missing, or read otherwise.
    """
    features = graph.parameters.get(VISUAL_FEATURES)
    readers = [] if features is None else [use.node for use in graph.uses(features) if use.node.op not in SHAPE_READERS]
    if any(node.op != "Gather" or node.attributes.get("axis", 0) != 0 for node in readers):
        return 0
    levels = [fold_scalar(graph, node.inputs[1]) for node in readers]
    known = [int(level) for level in levels if level is not None and level >= 0]
    return 1 + max(known) if known and len(known) == len(levels) else 0


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


def unread_outputs(model: Model) -> frozenset[str]:
    """Return the `constant_outputs` that no program reads.

    A draft of a reduced vocabulary returns the table of its ids' differences to those of its target
    (openvino.genai, ``eagle3_model_transforms.cpp``): integers, as many as there are logits.

    Args:
        model: The model.
    """
    sizes = {port.name: port for port in model.outputs}
    logits = sizes["logits"].shape[-1:] if "logits" in sizes and sizes["logits"].shape else None
    constant = constant_outputs(model.graph)
    return frozenset(name for name in constant if sizes[name].shape != logits or sizes[name].element_type in REALS)


def weighs_new_tokens(graph: Graph) -> Iterator[Node]:
    """Yield the products of hidden states ``[batch, length, hidden]`` with the first columns of ``attention_mask``."""
    masks = [node.outputs[0] for node in graph.of_op("Parameter") if node.name == "attention_mask"]

    def first_columns(node: Node) -> bool:
        # In a mask over past and new tokens, the first columns belong to the past and the last to new tokens.
        return node.op in KEEPS_ORDER or starts_at_first(graph, node)

    for use in graph.forward(masks, lambda use: use.node.outputs if use.port == 0 and first_columns(use.node) else ()):
        if use.node.op == "Multiply":
            mask, other = use.node.source(use.port), use.node.source(1 - use.port)
            hidden = fixed_size(other, -1) if other.rank == 3 else None
            if mask.rank == 3 and fixed_size(mask, -1) == 1 and hidden is not None and hidden > 1:
                yield use.node


def absorbs_padding(model: Model, cache: Cache) -> bool:
    """Return whether ``attention_mask`` affects the present of a linear ``cache`` only through attention.

    Args:
        model: The model.
        cache: The ``linear`` cache; if the result is true, padding changes its content.
    """
    return cache.write not in model.analysis(_masked_writes)


def absorbs_attention(model: Model, cache: Cache) -> bool:
    """Return whether a linear ``cache`` of ``model`` is computed from a result of attention.

    Args:
        model: The model.
        cache: The ``linear`` cache, which must be written back.
    """
    graph = model.graph
    attention = {block.node.index for block in model.analysis(find_attention)}
    written = graph.writes[cache.write].inputs[:1]
    return any(node.index in attention for node in graph.backward(written, lambda node: node.inputs))


def _masked_writes(model: Model) -> set[str]:
    masks = [node.outputs[0] for node in model.graph.of_op("Parameter") if node.name == "attention_mask"]
    reached = model.graph.forward(masks, lambda use: () if use.node.op in _NO_WAY else use.node.outputs)
    return {use.node.name for use in reached if use.node.op in {"Assign", "Result"}}
