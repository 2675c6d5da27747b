"""The cache inventory: every tensor a model carries, its kind, role and axes, told from the dataflow alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphpass.analysis.attention import Attention, find_attention
from graphpass.analysis.operands import Operand, attention_operands
from graphpass.analysis.pairs import INNER_CACHES, Pair, appended, find_pairs, is_stateful, may_be_past, same_tensor
from graphpass.analysis.unpaired import unpaired_inputs, unpaired_outputs
from graphpass.caches import AttentionBlock, Axes, Cache, CacheKind, CacheRole, Inventory
from graphpass.graph import Graph, Node, Value
from graphpass.model import Model

__all__ = ["analyze_caches"]

_INNER_AXES = Axes(batch=0, heads=1, sequence=2, head_dim=3)

_CROSS_ROLES: dict[str, CacheRole] = {"key": "cross_key", "value": "cross_value"}


@dataclass(frozen=True, slots=True)
class _Found:
    """A cache, how deep in the graph its layer uses it, and the attention that reads it."""

    cache: Cache
    depth: int
    reader: int | None = None


def analyze_caches(model: Model) -> Inventory:
    """All caches of ``model``, and where attention reads them.

    Args:
        model: ONNX or OpenVINO, stateless or stateful. Kept until the model is edited.

    Returns:
        The inventory; a cache for whose kind the evidence is not conclusive has kind ``unknown`` and says what is
        missing.
    """
    return model.analysis(_analyze)


def _analyze(model: Model) -> Inventory:
    graph = model.graph
    operands = model.analysis(attention_operands)
    pairs = find_pairs(model)
    found = [_classify(graph, pair, operands) for pair in pairs]
    paired = {pair.read.index for pair in pairs}
    for node in graph.of_op("Parameter"):
        readers = operands.get((node.index, 0))
        if readers and node.index not in paired and may_be_past(node.outputs[0]):
            found.append(_read_only(graph, node, readers[0]))
    caches = _with_layers(found)
    linear = {cache.read for cache in caches if cache.kind == "linear"}
    known = tuple(pair for pair in pairs if pair.read.name in linear)
    blocks = tuple(_block(attention, found) for attention in model.analysis(find_attention))
    return Inventory(
        stateful=is_stateful(model),
        caches=caches,
        attention=blocks,
        unpaired_inputs=unpaired_inputs(graph, pairs, known, operands),
        unpaired_outputs=unpaired_outputs(graph, pairs, known, operands),
    )


Operands = dict[tuple[int, int], tuple[Operand, ...]]


def _classify(graph: Graph, pair: Pair, operands: Operands) -> _Found:
    cache = Cache(
        name=pair.read.attributes.get("variable", pair.read.name),
        kind="unknown",
        role="unknown",
        layer=None,
        axes=Axes(),
        shape=pair.past.shape,
        element_type=pair.past.element_type,
        read=pair.read.name,
        write=pair.write.name if pair.write is not None else None,
    )
    if pair.present is None or same_tensor(graph, pair.present) == pair.past:
        return _constant(graph, cache, pair, operands)
    producer = graph.producer(pair.present)
    if producer.op in INNER_CACHES:
        return _inside_operator(graph, cache, pair, producer)
    concat = appended(graph, pair)
    if concat is not None:
        return _growing(graph, cache, concat, operands)
    return _replaced(graph, cache, pair)


def _growing(graph: Graph, cache: Cache, concat: Node, operands: Operands) -> _Found:
    axis = concat.attributes["axis"]
    evidence = f"appended along axis {axis} by Concat {concat.name}, which is written back whole"
    depth = graph.depths[concat.index]
    readers = operands.get((concat.index, 0), ())
    if not readers:
        missing = "what it grows to is read by no attention that could be recognised"
        return _Found(replace(cache, evidence=(evidence, missing)), depth)
    reader = readers[0]
    if reader.labels[axis] != "sequence":
        missing = f"axis {axis} is the {reader.labels[axis]} axis of the attention that reads it, not the sequence axis"
        return _Found(replace(cache, evidence=(evidence, missing)), depth)
    node = reader.attention.node
    read = f"the result is the {reader.role} of {node.op} {node.name}"
    cache = replace(cache, kind="kv", role=reader.role, axes=_axes(reader), evidence=(evidence, read))
    return _Found(cache, graph.depths[node.index], node.index)


def _axes(reader: Operand) -> Axes:
    places = {label: position for position, label in enumerate(reader.labels)}
    return Axes(places.get("batch"), places.get("heads"), places.get("sequence"), places.get("head_dim"))


def _inside_operator(graph: Graph, cache: Cache, pair: Pair, producer: Node) -> _Found:
    assert pair.present is not None
    roles: tuple[CacheRole, CacheRole] = ("key", "value")
    for role, (past, present) in zip(roles, INNER_CACHES[producer.op], strict=True):
        reads = past < len(producer.inputs) and producer.inputs[past] == pair.past
        if reads and present == pair.present.port:
            evidence = f"appended inside {producer.op} {producer.name} (input {past} to output {present})"
            cache = replace(cache, kind="kv", role=role, axes=_INNER_AXES, evidence=(evidence,))
    return _Found(cache, graph.depths[producer.index], producer.index)


def _constant(graph: Graph, cache: Cache, pair: Pair, operands: Operands) -> _Found:
    readers = operands.get((pair.past.node, pair.past.port), ())
    if readers:
        reading = readers[0].attention.node
        return _Found(_cross(cache, readers[0], "written back as it is"), graph.depths[reading.index], reading.index)
    evidence = ("written back as it is", "no attention that could be recognised reads it as key or value")
    role: CacheRole = "encoder_hidden" if _starts_from_input(graph, pair.read) else "unknown"
    kind: CacheKind = "cross" if role == "encoder_hidden" else "unknown"
    return _Found(
        replace(cache, kind=kind, role=role, axes=Axes(batch=0), evidence=evidence), graph.depths[pair.read.index]
    )


def _starts_from_input(graph: Graph, read: Node) -> bool:
    """Whether a variable starts as a model input, as it stands."""
    source = read.inputs[0] if read.inputs else None
    return source is not None and graph.producer(same_tensor(graph, source)).op == "Parameter"


def _read_only(graph: Graph, node: Node, reader: Operand) -> _Found:
    value = node.outputs[0]
    cache = Cache(node.name, "cross", "unknown", None, Axes(), value.shape, value.element_type, node.name, None)
    reading = reader.attention.node
    return _Found(
        _cross(cache, reader, "given from outside, never written"), graph.depths[reading.index], reading.index
    )


def _cross(cache: Cache, reader: Operand, evidence: str) -> Cache:
    axes = _axes(reader)
    node = reader.attention.node
    read = f"read as the {reader.role} of {node.op} {node.name}"
    return replace(cache, kind="cross", role=_CROSS_ROLES[reader.role], axes=axes, evidence=(evidence, read))


def _replaced(graph: Graph, cache: Cache, pair: Pair) -> _Found:
    assert pair.present is not None
    producer = graph.producer(pair.present)
    depth = graph.depths[producer.index]
    evidence = f"replaced each step by the result of {producer.op} {producer.name}"
    fixed = [dimension for dimension in (cache.shape or ())[1:] if isinstance(dimension, int)]
    if cache.shape is None or len(fixed) != len(cache.shape) - 1:
        missing = "dimensions other than the first are not fixed, so its size may depend on the sequence"
        return _Found(replace(cache, evidence=(evidence, missing)), depth)
    window = _window(graph, pair.past)
    role: CacheRole = "conv" if window is not None else "recurrent"
    use = (
        f"a window: {window.op} {window.name} shifts new columns in" if window is not None else "updated by arithmetic"
    )
    size = "its size depends on the batch alone"
    return _Found(replace(cache, kind="linear", role=role, axes=Axes(batch=0), evidence=(evidence, use, size)), depth)


def _window(graph: Graph, past: Value) -> Node | None:
    """The Concat or Roll that shifts new columns into a convolution's window."""
    pending, seen = [past], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.index in seen:
                continue
            seen.add(use.node.index)
            if use.node.op in {"Concat", "Roll", "CausalConvWithState"}:
                return use.node
            if use.node.op in {"Convert", "Identity", "Gather", "Slice", "StridedSlice"} and use.port == 0:
                pending.extend(use.node.outputs)
    return None


def _with_layers(found: list[_Found]) -> tuple[Cache, ...]:
    """Caches in order, numbered by layer: caches of one attention share it, and so do a window and a recurrent state.

    Layers are told apart by depth: all that a layer updates lies deeper in the graph than the layer before.
    """
    order = {"key": 0, "value": 1, "conv": 0, "recurrent": 1, "cross_key": 2, "cross_value": 3}
    layer, layers = -1, []
    previous: _Found | None = None
    seen: set[tuple[str, str]] = set()
    for entry in sorted(found, key=lambda entry: (entry.depth, order.get(entry.cache.role, 9), entry.cache.name)):
        identity = (entry.cache.kind, entry.cache.role)
        joins = previous is not None and identity not in seen and _same_layer(previous, entry)
        if not joins:
            layer += 1
            seen = set()
        seen.add(identity)
        layers.append(replace(entry.cache, layer=None if entry.cache.kind == "unknown" else layer))
        previous = entry
    return tuple(
        sorted(layers, key=lambda cache: (cache.layer is None, cache.layer or 0, order.get(cache.role, 9), cache.name))
    )


def _same_layer(first: _Found, second: _Found) -> bool:
    if first.reader is not None or second.reader is not None:
        return first.reader == second.reader or (first.cache.kind == "kv" and second.cache.kind == "cross")
    return first.cache.kind == second.cache.kind


def _block(attention: Attention, found: list[_Found]) -> AttentionBlock:
    mine = [entry.cache for entry in found if entry.reader == attention.node.index]
    return AttentionBlock(
        node=attention.node.name,
        form=attention.node.op if attention.is_fused else "decomposed",
        key=next((cache.name for cache in mine if cache.role in {"key", "cross_key"}), None),
        value=next((cache.name for cache in mine if cache.role in {"value", "cross_value"}), None),
        fusable=attention.reason is None,
        reason=attention.reason,
    )
