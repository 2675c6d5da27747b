"""Find the conventional names of a decoder's inputs and outputs by dataflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import OPERATORS
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.view import names_of
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.inputs import CONVENTIONAL, EMBEDDINGS, ENCODER_STATES, token_input
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, CASTS, LAYOUT, SHAPE_READERS
from graphpass.ir.values import INTEGERS, REALS, fixed_size, head_of, selected_rows

#: Compute angles from positions.
_TO_ANGLES = LAYOUT | CASTS | ARITHMETIC | {"MatMul", "Concat"}

_MASK, _POSITIONS, _LOGITS = "attention_mask", "position_ids", "logits"


def port_names(model: Model) -> dict[str, str]:
    """Return conventional names of inputs and outputs that have others, by present name.

    - ``input_ids``: integers that select rows of a table with as many rows as the logits have columns
    - ``inputs_embeds``: the only real input ``[batch, length, hidden]`` of a model without such integers
    - ``position_ids``: integers from which angles are computed, or rows of a table of positions are selected
    - ``attention_mask``: the only other input of rank 2 that a mask reads, in models without cross attention
    - ``logits``: the only output of rank 3 that is computed by a product with weights and is not a cache

    openvino.convert_model keeps names of traced values beside those of arguments. NPUW reads the alphabetically first
    name of an input, so that inputs with several names keep one.

    Args:
        model: Any model; it is not modified.

    Returns:
        The names; names of other ports, and those for which several ports qualify, are omitted. Of models
        without caches, which may be encoders, logits alone are named, if token ids are.
    """
    graph = inlined(model).graph
    inventory = model.analysis(analyze_caches)
    caches = {cache.read for cache in inventory.caches} | {cache.write for cache in inventory.caches}
    ports = {node.name: node for node in graph.of_op("Parameter", "Result") if node.name not in caches}
    outputs = [node for node in ports.values() if node.op == "Result" and _is_logits(graph, node)]
    inputs = [node for node in ports.values() if node.op == "Parameter"]
    names = {outputs[0].name: _LOGITS} if len(outputs) == 1 else {}
    vocabulary = fixed_size(outputs[0].source(), 2) if len(outputs) == 1 else None
    known = token_input(graph)
    if not inventory.caches:
        rows = [] if known is None else [*selected_rows(graph, known)]
        is_decoder = vocabulary is not None and vocabulary in rows and _LOGITS not in ports
        return dict(_aliased(model)) | (names if is_decoder else {})
    tokens = _tokens(graph, inputs, vocabulary) if known is None else graph.producer(known)
    if tokens is None:
        return dict(_aliased(model))
    if known is None:
        names[tokens.name] = "input_ids" if _is_integer(tokens) else EMBEDDINGS
    # Masks of cross attention cover an encoder's positions.
    is_decoder = not (inventory.of_kind("cross") or ENCODER_STATES in ports)
    others = [node for node in inputs if is_decoder and node != tokens and node.name not in CONVENTIONAL]
    positions = _only(others, lambda node: _is_integer(node) and _numbers_positions(graph, node))
    if positions is not None:
        names[positions.name] = _POSITIONS
    others = [node for node in others if node != positions and node.outputs[0].rank == 2]
    read = set(_conditions(model, graph)) if others and _MASK not in ports else ()
    mask = _only(others, lambda node: node in read)
    if mask is not None:
        names[mask.name] = _MASK
    renamed = {port: names[port] for port in ports if port in names and names[port] not in ports}
    return dict(_aliased(model)) | renamed


def _aliased(model: Model) -> Iterator[tuple[str, str]]:
    """Yield each input with several names, and the name to keep."""
    for port, aliases in names_of(model, model.inputs):
        if len(aliases) > 1:
            yield port.name, min(aliases & CONVENTIONAL, default=port.name)


def _tokens(graph: Graph, inputs: list[Node], vocabulary: int | None) -> Node | None:
    """Return the input of tokens, or of their embeddings; ``None`` if not exactly one qualifies."""
    selecting = [node for node in inputs if _is_integer(node) and any(selected_rows(graph, node.outputs[0]))]
    if not selecting:
        return _only(inputs, lambda node: _is_real(node.outputs[0], 3))
    of_vocabulary = (
        _only(selecting, lambda node: vocabulary in selected_rows(graph, node.outputs[0])) if vocabulary else None
    )
    return of_vocabulary or _only(selecting, lambda _: True)


def _numbers_positions(graph: Graph, node: Node) -> bool:
    """Return whether an input becomes angles, or selects rows of a table."""

    def further(use: Use) -> Iterable[Value]:
        return use.node.outputs if use.node.op in _TO_ANGLES else ()

    uses = graph.forward(node.outputs, further)
    is_read = any(use.node.op in {"Cos", "Sin"} or (use.node.op == "RotaryEmbedding" and use.port > 0) for use in uses)
    return is_read or any(selected_rows(graph, node.outputs[0]))


def _conditions(model: Model, graph: Graph) -> Iterator[Node]:
    """Yield inputs upstream of masks and row lengths; for models without attention, all inputs."""
    attentions = inlined(model).analysis(find_attention)
    values: list[Value] = [mask.value for attention in attentions for mask in attention.masks]
    for attention in attentions:
        ports = OPERATORS.get(attention.node.op)
        if ports is not None:
            values += filter(None, map(attention.node.input, (*ports.masks, *ports.lengths)))
        elif attention.miss is not None:
            values += attention.node.sources
    reached = graph.backward(values, lambda node: () if node.op in SHAPE_READERS else node.inputs)
    for node in graph.of_op("Parameter") if model.analysis(analyze_caches).kind == "linear" else reached:
        if node.op == "Parameter":
            yield node


def _only(nodes: Iterable[Node], qualifies: Callable[[Node], bool]) -> Node | None:
    found = [node for node in nodes if qualifies(node)]
    return found[0] if len(found) == 1 else None


def _is_integer(node: Node) -> bool:
    return node.outputs[0].element_type in INTEGERS and node.outputs[0].rank in {2, 3}


def _is_logits(graph: Graph, result: Node) -> bool:
    return _is_real(result.source(), 3) and head_of(graph, result) is not None


def _is_real(value: Value, rank: int) -> bool:
    return value.element_type in REALS and value.rank == rank
