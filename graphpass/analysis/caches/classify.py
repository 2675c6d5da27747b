"""What one carried tensor is, told from how it is updated and from who reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphpass.analysis.attention.axis_trace import Labels
from graphpass.analysis.attention.reads import Read
from graphpass.analysis.caches.adapters import adapter, counter
from graphpass.analysis.caches.conv_windows import shifted_in
from graphpass.analysis.caches.evidence import names, notes, read_by, update_text
from graphpass.analysis.caches.growth import growth_of, state_batch_axis
from graphpass.analysis.caches.loops import sliced_axes, takes_part_in_turn, updated_in_loop
from graphpass.analysis.caches.operator_states import entered_state, inside_operator
from graphpass.analysis.caches.packed import Flat, find_flat
from graphpass.analysis.caches.pairs import Pair, appended, same_tensor
from graphpass.analysis.caches.updates import Update, find_updates
from graphpass.ir.cache import Axes, Cache, CacheKind, CacheRole
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.types import Dimension

__all__ = ["Found", "classify", "read_only"]

_CROSS_ROLES: dict[str, CacheRole] = {"key": "cross_key", "value": "cross_value"}


@dataclass(frozen=True, slots=True)
class Found:
    """A cache, how deep in the graph its layer uses it, and the attention that reads it.

    Attributes:
        cache: The cache.
        depth: How deep.
        readers: The attention nodes that read it, by index.
        spans_layers: Whether it holds what several layers keep.
    """

    cache: Cache
    depth: int
    readers: tuple[int, ...] = ()
    spans_layers: bool = False

    @property
    def reader(self) -> int | None:
        """The first attention that reads it."""
        return self.readers[0] if self.readers else None


def classify(model: Model, pair: Pair, reads: tuple[Read, ...]) -> Found:
    """What ``pair`` is.

    Args:
        model: The model, as `graphpass.ir.bodies.inlined` shows it.
        pair: What it carries.
        reads: The attention that reads its past.
    """
    graph = model.graph
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
    other = _other(graph, cache, pair)
    if other is not None:
        return Found(other, graph.depths[pair.read.index])
    if pair.present is None or same_tensor(graph, pair.present) == pair.past:
        return _constant(graph, cache, pair, reads)
    inside = inside_operator(graph, cache, pair)
    if inside is not None:
        cache, node = inside
        return Found(cache, graph.depths[node.index], (node.index,) if cache.kind == "kv" else ())
    updates = find_updates(graph, pair)
    positioned = tuple(read for read in reads if "sequence" in read.labels)
    return (
        _kept(graph, cache, pair, updates, positioned)
        or _growing(model, cache, pair, updates, positioned)
        or _replaced(model, cache, pair)
    )


def _other(graph: Graph, cache: Cache, pair: Pair) -> Cache | None:
    """``cache`` as what it is instead, where that is known."""
    rules: tuple[tuple[CacheRole, tuple[str, ...] | None], ...] = (
        ("adapter", adapter(graph, pair)),
        ("counter", counter(graph, pair)),
    )
    return next((replace(cache, kind="other", role=role, evidence=facts) for role, facts in rules if facts), None)


def _kept(graph: Graph, cache: Cache, pair: Pair, updates: tuple[Update, ...], reads: tuple[Read, ...]) -> Found | None:
    """A cache that is updated along the axis along which attention reads its positions."""
    ordered = sorted(updates, key=lambda update: not update.appends)
    match = next(((read, update) for update in ordered for read in reads if _keeps_what_is_read(read, update)), None)
    if match is None:
        return None
    read, update = match
    contents = tuple(one for one in reads if not one.has("scale", "zero_point"))
    readers = tuple(sorted({one.attention.node.index for one in contents or reads}))
    roles = {one.role for one in contents}
    axes = axes_of(read.labels)
    spans = any(takes_part_in_turn(graph, via) for one in contents for via in one.vias) or (
        len(readers) > 1 and any(one.has("part") or _cuts_a_layer(one) for one in contents)
    )
    cache = replace(
        cache,
        kind="kv",
        role=next(iter(roles)) if len(roles) == 1 else "unknown",
        axes=axes,
        evidence=(
            update_text(graph, pair, update, read.labels.index("sequence")),
            *read_by(contents or reads),
            *notes(contents or reads, is_companion=not contents, spans_layers=spans),
        ),
    )
    return Found(cache, graph.depths[readers[0]], readers, spans)


def _keeps_what_is_read(read: Read, update: Update) -> bool:
    """Whether attention reads along the sequence axis what ``update`` makes, not something else made of the past."""
    return read.labels.index("sequence") in update.axes and any(via.node == update.node for via in read.vias)


def _cuts_a_layer(read: Read) -> bool:
    """Whether a Slice takes something else than positions or heads on the way to ``read``."""
    return any(via.kind == "slice" and set(via.labels) & {None, "part"} for via in read.vias)


def axes_of(labels: Labels) -> Axes:
    """Where the logical axes stand."""
    places = {label: position for position, label in enumerate(labels) if isinstance(label, str)}
    merged = next((position for position, label in enumerate(labels) if _holds(label, "head_dim")), None)
    return Axes(places.get("batch"), places.get("heads"), places.get("sequence"), places.get("head_dim", merged))


def _holds(label: object, word: str) -> bool:
    return label == word or (isinstance(label, tuple) and word in label)


def _growing(
    model: Model, cache: Cache, pair: Pair, updates: tuple[Update, ...], reads: tuple[Read, ...]
) -> Found | None:
    """A tensor that grows but is not known to be read along the axis along which it does."""
    graph = model.graph
    concat = appended(graph, pair)
    if concat is None:
        update = next((one for one in updates if one.appends and one.cut_after is None), None)
        concat = update.node if update is not None and len(updates) == 1 and len(update.node.inputs) == 2 else None
        axis = update.axes[0] if update is not None else 0
    else:
        axis = concat.attributes["axis"]
    if concat is None or growth_of(model, pair.past, pair.present)[axis] in {"fixed", "kept"}:
        return None
    evidence = f"appended along axis {axis} by Concat {concat.name}, which is written back whole"
    label = reads[0].labels[axis] if reads and axis < len(reads[0].labels) else "sequence"
    if label != "sequence":
        missing = f"axis {axis} is the {label} axis of the attention that reads it, not the sequence axis"
        return Found(replace(cache, evidence=(evidence, missing)), graph.depths[concat.index])
    missing = "what it grows to is read by no attention that could be recognised"
    axes = Axes(batch=_batch(graph, cache.shape, axis), sequence=axis)
    return Found(replace(cache, axes=axes, evidence=(evidence, missing)), graph.depths[concat.index])


def _batch(graph: Graph, shape: tuple[Dimension, ...] | None, sequence: int) -> int | None:
    """The axis that is the batch: of the size that token inputs start with, or the only other one that is not fixed."""
    if shape is None:
        return None
    symbols = {
        node.outputs[0].shape[0]
        for node in graph.of_op("Parameter")
        if node.outputs[0].shape and len(node.outputs[0].shape) == 2 and node.outputs[0].element_type in {"i64", "i32"}
    }
    named = [axis for axis, size in enumerate(shape) if isinstance(size, str) and size in symbols and axis != sequence]
    if len(named) == 1:
        return named[0]
    free = [axis for axis, size in enumerate(shape) if not isinstance(size, int) and axis != sequence]
    return free[0] if len(free) == 1 else None


def _constant(graph: Graph, cache: Cache, pair: Pair, reads: tuple[Read, ...]) -> Found:
    direct = tuple(read for read in reads if _only_laid_out(read))
    written = "written back as it is" if pair.present is not None else "never written"
    if direct:
        return _cross(graph, cache, direct, written)
    starts = _starts_from_input(graph, pair.read)
    evidence: tuple[str, ...] = (written, "no attention that could be recognised reads it as key or value")
    if starts:
        products = names(via.node for read in reads for via in read.vias if via.kind == "weights")
        evidence = (
            f"starts as an input of the model, {written}",
            f"keys and values are computed from it by {products}" if products else evidence[1],
        )
    role: CacheRole = "encoder_hidden" if starts else "unknown"
    kind: CacheKind = "cross" if starts else "unknown"
    return Found(replace(cache, kind=kind, role=role, axes=Axes(batch=0), evidence=evidence), _depth(graph, pair.read))


def _depth(graph: Graph, node: Node) -> int:
    return graph.depths[node.index]


def _only_laid_out(read: Read) -> bool:
    """Whether attention reads the tensor's own content as it was given."""
    return "sequence" in read.labels and not read.has("weights", "arithmetic", "join", "write", "scale", "zero_point")


def _starts_from_input(graph: Graph, read: Node) -> bool:
    """Whether a variable starts as a model input, as it stands."""
    source = read.inputs[0] if read.inputs else None
    return source is not None and graph.producer(same_tensor(graph, source)).op == "Parameter"


def read_only(graph: Graph, node: Node, reads: tuple[Read, ...]) -> Found | None:
    """An input that attention reads as it is given; ``None`` where none does."""
    direct = tuple(read for read in reads if _only_laid_out(read))
    if not direct:
        return None
    value = node.outputs[0]
    cache = Cache(node.name, "cross", "unknown", None, Axes(), value.shape, value.element_type, node.name, None)
    return _cross(graph, cache, direct, "given from outside, never written")


def _cross(graph: Graph, cache: Cache, reads: tuple[Read, ...], evidence: str) -> Found:
    readers = tuple(sorted({read.attention.node.index for read in reads}))
    roles = {read.role for read in reads}
    cache = replace(
        cache,
        kind="cross",
        role=_CROSS_ROLES[reads[0].role] if len(roles) == 1 else "unknown",
        axes=axes_of(reads[0].labels),
        evidence=(evidence, *read_by(reads, "read as the")),
    )
    return Found(cache, graph.depths[readers[0]], readers)


def _replaced(model: Model, cache: Cache, pair: Pair) -> Found:
    assert pair.present is not None
    graph = model.graph
    producer = graph.producer(pair.present)
    depth = graph.depths[producer.index]
    evidence = f"replaced each step by the result of {producer.called}"
    flat = find_flat(graph, pair.read, pair.write) if pair.write is not None else None
    evidence = (updated_in_loop(graph, pair) if flat is None else None) or evidence
    entered = entered_state(graph, cache, pair)
    if entered is not None:
        return Found(entered, depth)
    layers = sliced_axes(graph, pair)
    batch = state_batch_axis(model, pair.past, pair.present)
    if batch in layers:
        batch = min((axis for axis in range(len(cache.shape or ())) if axis not in layers), default=batch)
    growth = growth_of(model, pair.past, pair.present)
    known = {batch, *layers}
    free = [axis for axis, one in enumerate(growth) if one not in {"fixed", "kept"} and axis not in known]
    if free or not growth:
        where = f"axis {free[0]}" if free else "any axis"
        missing = f"nothing fixes its size along {where}, which may depend on the sequence"
        return Found(replace(cache, evidence=(evidence, missing)), depth)
    role, use = _use(graph, pair.past, flat)
    spanned = (f"several layers in one tensor: {names(layers.values())} takes each layer's part",) if layers else ()
    facts = (evidence, use, "its size depends on the batch alone", *spanned)
    cache = replace(cache, kind="linear", role=role, axes=Axes(batch=batch), evidence=facts)
    return Found(cache, depth, spans_layers=bool(layers))


def _use(graph: Graph, past: Value, flat: Flat | None) -> tuple[CacheRole, str]:
    """What a state is used for, and why that is said."""
    if flat is not None:
        return "unknown", f"{len(flat.states)} states in one tensor: {names(flat.takers)} takes them apart"
    window = shifted_in(graph, past)
    if window is not None:
        return "conv", f"a window: {window.op} {window.name} shifts new columns in"
    return "recurrent", "updated by arithmetic"
