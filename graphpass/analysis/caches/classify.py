"""Classify one carried tensor by its update and its readers.

Rules are tried in order; each claims a `Classification`, or returns the fact that it misses. `classify` takes the first
claim, and ``why`` (`graphpass.reports.cache`) reports what each rule returned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from graphpass.analysis.attention.axis_trace import Labels
from graphpass.analysis.attention.reads import Read
from graphpass.analysis.caches.evidence import names, notes, read_by, update_text
from graphpass.analysis.caches.growth import growth_of, state_batch_axis
from graphpass.analysis.caches.loops import sliced_axes, takes_part_in_turn, updated_in_loop
from graphpass.analysis.caches.packed import Flat, find_flat
from graphpass.analysis.caches.pairs import Pair, appended, look_through_moves
from graphpass.analysis.caches.states import adapter, counter, entered_state, inside_operator, shifted_in
from graphpass.analysis.caches.updates import Update, find_updates
from graphpass.ir.cache import Axes, Cache, CacheKind, CacheRole
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS
from graphpass.ir.types import Dimension

__all__ = ["RULES", "Case", "Classification", "Rule", "classify", "read_only"]

_CROSS_ROLES: dict[str, CacheRole] = {"key": "cross_key", "value": "cross_value"}


@dataclass(frozen=True, slots=True)
class Classification:
    """A cache, where its layer uses it, and the attention that reads it.

    Attributes:
        cache: The cache; of kind ``unknown`` if its evidence is not conclusive.
        depth: Depth of its use in the graph.
        readers: The attention nodes that read it, by index.
        spans_layers: Whether it holds the caches of several layers.
    """

    cache: Cache
    depth: int
    readers: tuple[int, ...] = ()
    spans_layers: bool = False

    @property
    def reader(self) -> int | None:
        """First attention that reads it."""
        return self.readers[0] if self.readers else None


@dataclass(frozen=True)
class Case:
    """A carried tensor to classify.

    Attributes:
        model: The model, as `graphpass.ir.bodies.inlined` shows it.
        pair: A tensor that it carries.
        reads: The attention that reads its past.
    """

    model: Model
    pair: Pair
    reads: tuple[Read, ...]

    @property
    def graph(self) -> Graph:
        """Graph of the model."""
        return self.model.graph

    @cached_property
    def updates(self) -> tuple[Update, ...]:
        """Operators that append to the past or write into it on the way to the present."""
        return find_updates(self.graph, self.pair)

    @cached_property
    def cache(self) -> Cache:
        """The cache, of which only shape and type are known."""
        read, past, write = self.pair.read, self.pair.past, self.pair.write
        name, written = read.attributes.get("variable", read.name), write.name if write is not None else None
        return Cache(name, "unknown", "unknown", None, Axes(), past.shape, past.element_type, read.name, written)

    @property
    def maker(self) -> Node:
        """Operator that makes the present, before conversions."""
        assert self.pair.present is not None
        return self.graph.producer(self.graph.look_through(self.pair.present, CASTS))


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        claim: What holds if it applies.
        judge: Returns the classification, or the first fact that is missed.
    """

    claim: str
    judge: Callable[[Case], Classification | str]


def classify(case: Case) -> Classification:
    """Return the claim of the first rule that applies."""
    for rule in RULES:
        found = rule.judge(case)
        if isinstance(found, Classification):
            return found
    raise AssertionError("the last rule always claims something")


def _other(case: Case, role: CacheRole, facts: tuple[str, ...] | str) -> Classification | str:
    if isinstance(facts, str):
        return facts
    cache = replace(case.cache, kind="other", role=role, evidence=facts)
    return Classification(cache, case.graph.depths[case.pair.read.index])


def _constant(case: Case) -> Classification | str:
    graph, present = case.graph, case.pair.present
    if present is not None and look_through_moves(graph, present) != case.pair.past:
        return f"the present is made by {case.maker.called}"
    direct = tuple(read for read in case.reads if _only_laid_out(read))
    written = "written back as it is" if present is not None else "never written"
    if direct:
        return _cross(graph, case.cache, direct, written)
    starts = _starts_from_input(graph, case.pair.read)
    evidence: tuple[str, ...] = (written, "no attention that could be recognised reads it as key or value")
    if starts:
        products = names(step.node for read in case.reads for step in read.path if step.kind == "weights")
        evidence = (
            f"starts as an input of the model, {written}",
            f"keys and values are computed from it by {products}" if products else evidence[1],
        )
    role: CacheRole = "encoder_hidden" if starts else "unknown"
    kind: CacheKind = "cross" if starts else "unknown"
    cache = replace(case.cache, kind=kind, role=role, axes=Axes(batch=0), evidence=evidence)
    return Classification(cache, graph.depths[case.pair.read.index])


def _inside(case: Case) -> Classification | str:
    found = inside_operator(case.graph, case.cache, case.pair)
    if found is None:
        return f"the present is made by {case.maker.called}, which does not hold this past inside"
    cache, node = found
    return Classification(cache, case.graph.depths[node.index], (node.index,) if cache.kind == "kv" else ())


def _kept(case: Case) -> Classification | str:
    """Classify a cache that is updated along the axis along which attention reads its positions."""
    graph, reads = case.graph, tuple(read for read in case.reads if "sequence" in read.labels)
    if not case.updates:
        return "no Concat and no scatter operator makes the present from the past"
    ordered = sorted(case.updates, key=lambda update: not update.appends)
    along = f"{ordered[0].node.called} works along axis {' or '.join(map(str, ordered[0].axes))}"
    if not reads:
        return f"{along}, but no attention that could be recognised reads it by position"
    match = next(((read, update) for update in ordered for read in reads if _keeps_what_is_read(read, update)), None)
    if match is None:
        axis = reads[0].labels.index("sequence")
        return f"{along}, but {reads[0].attention.node.called} reads positions along axis {axis}"
    read, update = match
    contents = tuple(one for one in reads if not one.has("scale", "zero_point"))
    readers = tuple(sorted({one.attention.node.index for one in contents or reads}))
    roles = {one.role for one in contents}
    spans = any(takes_part_in_turn(graph, step) for one in contents for step in one.path) or (
        len(readers) > 1 and any(one.has("part") or _cuts_a_layer(one) for one in contents)
    )
    cache = replace(
        case.cache,
        kind="kv",
        role=next(iter(roles)) if len(roles) == 1 else "unknown",
        axes=axes_of(read.labels),
        evidence=(
            update_text(graph, case.pair, update, read.labels.index("sequence")),
            *read_by(contents or reads),
            *notes(contents or reads, is_companion=not contents, spans_layers=spans),
        ),
    )
    return Classification(cache, graph.depths[readers[0]], readers, spans)


def _keeps_what_is_read(read: Read, update: Update) -> bool:
    """Return whether attention reads the result of ``update`` along the sequence axis, not another form of the past."""
    return read.labels.index("sequence") in update.axes and any(step.node == update.node for step in read.path)


def _cuts_a_layer(read: Read) -> bool:
    """Return whether a Slice on the way to ``read`` takes something else than positions or heads."""
    return any(step.kind == "slice" and set(step.labels) & {None, "part"} for step in read.path)


def axes_of(labels: Labels) -> Axes:
    """Return the places of the logical axes."""
    places = {label: position for position, label in enumerate(labels) if isinstance(label, str)}
    merged = next((position for position, label in enumerate(labels) if _holds(label, "head_dim")), None)
    return Axes(places.get("batch"), places.get("heads"), places.get("sequence"), places.get("head_dim", merged))


def _holds(label: object, word: str) -> bool:
    return label == word or (isinstance(label, tuple) and word in label)


def _growing(case: Case) -> Classification | str:
    """Classify a tensor that grows but is not known to be read along the axis along which it does."""
    concat = appended(case.graph, case.pair)
    if concat is None:
        update = next((one for one in case.updates if one.appends and one.cut_after is None), None)
        if update is None or len(case.updates) > 1 or len(update.node.inputs) != 2:
            return f"the present is made by {case.maker.called}, not by a Concat of the past and one new part"
        concat, axis = update.node, update.axes[0]
    else:
        axis = concat.attributes["axis"]
    if growth_of(case.model, case.pair.past, case.pair.present)[axis] in {"fixed", "kept"}:
        return f"Concat {concat.name} is written back whole, but it is no longer than before"
    evidence = f"appended along axis {axis} by Concat {concat.name}, which is written back whole"
    read = next((read for read in case.reads if "sequence" in read.labels), None)
    label = read.labels[axis] if read is not None and axis < len(read.labels) else "sequence"
    depth = case.graph.depths[concat.index]
    if label != "sequence":
        missing = f"axis {axis} is the {label} axis of the attention that reads it, not the sequence axis"
        return Classification(replace(case.cache, evidence=(evidence, missing)), depth)
    missing = "what it grows to is read by no attention that could be recognised"
    axes = Axes(batch=_batch(case.graph, case.cache.shape, axis), sequence=axis)
    return Classification(replace(case.cache, axes=axes, evidence=(evidence, missing)), depth)


def _batch(graph: Graph, shape: tuple[Dimension, ...] | None, sequence: int) -> int | None:
    """Return the batch axis: of the size that token inputs start with, or the only other one that is not fixed."""
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


def _only_laid_out(read: Read) -> bool:
    """Return whether attention reads the tensor's own content as it was given."""
    return "sequence" in read.labels and not read.has("weights", "arithmetic", "join", "write", "scale", "zero_point")


def _starts_from_input(graph: Graph, read: Node) -> bool:
    """Return whether a variable starts as a model input, as it stands."""
    source = read.inputs[0] if read.inputs else None
    return source is not None and graph.producer(look_through_moves(graph, source)).op == "Parameter"


def read_only(graph: Graph, node: Node, reads: tuple[Read, ...]) -> Classification | None:
    """Classify an input that attention reads as it is given; ``None`` if none does."""
    direct = tuple(read for read in reads if _only_laid_out(read))
    if not direct:
        return None
    value = node.outputs[0]
    cache = Cache(node.name, "cross", "unknown", None, Axes(), value.shape, value.element_type, node.name, None)
    return _cross(graph, cache, direct, "given from outside, never written")


def _cross(graph: Graph, cache: Cache, reads: tuple[Read, ...], evidence: str) -> Classification:
    readers = tuple(sorted({read.attention.node.index for read in reads}))
    roles = {read.role for read in reads}
    cache = replace(
        cache,
        kind="cross",
        role=_CROSS_ROLES[reads[0].role] if len(roles) == 1 else "unknown",
        axes=axes_of(reads[0].labels),
        evidence=(evidence, *read_by(reads, "read as the")),
    )
    return Classification(cache, graph.depths[readers[0]], readers)


def _state(case: Case) -> Classification | str:
    entered = entered_state(case.graph, case.cache, case.pair)
    if entered is None or case.pair.present is None:
        return "no operator with a recurrent state reads it"
    return Classification(entered, case.graph.depths[case.pair.present.node])


def _replaced(case: Case) -> Classification:
    graph, model, pair = case.graph, case.model, case.pair
    assert pair.present is not None
    producer = graph.producer(pair.present)
    depth = graph.depths[producer.index]
    evidence = f"replaced each step by the result of {producer.called}"
    flat = find_flat(graph, pair.read, pair.write) if pair.write is not None else None
    evidence = (updated_in_loop(graph, pair) if flat is None else None) or evidence
    layers = sliced_axes(graph, pair)
    batch = state_batch_axis(model, pair.past, pair.present)
    if batch in layers:
        batch = min((axis for axis in range(len(case.cache.shape or ())) if axis not in layers), default=batch)
    growth = growth_of(model, pair.past, pair.present)
    known = {batch, *layers}
    free = [axis for axis, one in enumerate(growth) if one not in {"fixed", "kept"} and axis not in known]
    if free or not growth:
        where = f"axis {free[0]}" if free else "any axis"
        missing = f"nothing fixes its size along {where}, which may depend on the sequence"
        return Classification(replace(case.cache, evidence=(evidence, missing)), depth)
    role, use = _use(graph, pair.past, flat)
    spanned = (f"several layers in one tensor: {names(layers.values())} takes each layer's part",) if layers else ()
    facts = (evidence, use, "its size depends on the batch alone", *spanned)
    cache = replace(case.cache, kind="linear", role=role, axes=Axes(batch=batch), evidence=facts)
    return Classification(cache, depth, spans_layers=bool(layers))


def _use(graph: Graph, past: Value, flat: Flat | None) -> tuple[CacheRole, str]:
    """Return the use of a state, and the evidence."""
    if flat is not None:
        return "unknown", f"{len(flat.states)} states in one tensor: {names(flat.takers)} takes them apart"
    window = shifted_in(graph, past)
    if window is not None:
        return "conv", f"a window: {window.op} {window.name} shifts new columns in"
    return "recurrent", "updated by arithmetic"


#: In the order in which they are tried.
RULES = (
    Rule(
        "no cache: weights that the application sets (LoRA)",
        lambda case: _other(case, "adapter", adapter(case.graph, case.pair)),
    ),
    Rule("no cache: a counter", lambda case: _other(case, "counter", counter(case.graph, case.pair))),
    Rule("cross: computed once, then only read", _constant),
    Rule("held inside an operator", _inside),
    Rule("kv: attention reads the positions that are appended or written", _kept),
    Rule("appended, but who reads its positions is not known", _growing),
    Rule("the state of recurrent operators, laid out", _state),
    Rule("linear: replaced each step, of a size that depends on the batch alone", _replaced),
)
