"""Classify one carried tensor by its update and its readers.

Each rule returns a `Classification`, or the missing fact, which `graphpass.reports.cache` reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from graphpass.analysis.attention.axis_trace import Labels
from graphpass.analysis.attention.reads import Read
from graphpass.analysis.caches.growth import growth_of, state_batch_axis
from graphpass.analysis.caches.indexers import selections
from graphpass.analysis.caches.loops import sliced_axes, takes_part_in_turn, updated_in_loop
from graphpass.analysis.caches.packed import Flat, find_flat
from graphpass.analysis.caches.pairs import Pair, appended, look_through_moves
from graphpass.analysis.caches.states import adapter, counter, entered_state, inside_operator, shifted_in
from graphpass.analysis.caches.updates import Update, find_updates, names, notes, read_by, update_text
from graphpass.ir.cache import Axes, Cache, CacheRole
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS
from graphpass.ir.types import Dimension

_CROSS_ROLES: dict[CacheRole, CacheRole] = {"key": "cross_key", "value": "cross_value"}


@dataclass(frozen=True, slots=True)
class Classification:
    """A classified cache, its depth in the graph, and the attention that reads it.

    Attributes:
        cache: The cache; of kind ``unknown`` if its evidence is not conclusive.
        depth: Depth in the graph of the node that uses it, by which caches are sorted.
        readers: Indices of the attention nodes that read it.
        spans_layers: Whether it stores the caches of several layers.
    """

    cache: Cache
    depth: int
    readers: tuple[int, ...] = ()
    spans_layers: bool = False

    @property
    def reader(self) -> int | None:
        """Return the first attention that reads it."""
        return self.readers[0] if self.readers else None


@dataclass(frozen=True)
class CacheCase:
    """A carried tensor to classify in a ``model`` without bodies, with its reads."""

    model: Model
    pair: Pair
    reads: tuple[Read, ...]

    @property
    def graph(self) -> Graph:
        """Return the graph of the model."""
        return self.model.graph

    @cached_property
    def updates(self) -> tuple[Update, ...]:
        """Return the operators that append to the past or write into it."""
        return find_updates(self.graph, self.pair)

    @cached_property
    def cache(self) -> Cache:
        """Return the cache with names, shape and type, of unknown kind."""
        read, past, write = self.pair.read, self.pair.past, self.pair.write
        name, written = read.attributes.get("variable", read.name), write.name if write is not None else None
        return Cache(name, "unknown", "unknown", None, Axes(), past.shape, past.element_type, read.name, written)

    @property
    def maker(self) -> Node:
        """Return the operator that computes the present, looking through conversions."""
        assert self.pair.present is not None
        return self.graph.producer(self.graph.look_through(self.pair.present, CASTS))

    def claim(
        self, user: int, *evidence: str, readers: tuple[int, ...] = (), spans_layers: bool = False, **known: Any
    ) -> Classification:
        """Return the classification of the cache.

        Args:
            user: Index of the node whose depth is that of the cache.
            evidence: Reasons for kind and role; for kind ``unknown``, the last is the missing fact.
            readers: Indices of the attention nodes that read the cache.
            spans_layers: Whether it stores the caches of several layers.
            known: Further fields of the cache; ``kind`` and ``role`` are ``unknown`` by default.
        """
        cache = replace(self.cache, evidence=evidence, **known)
        return Classification(cache, self.graph.depths[user], readers, spans_layers)


@dataclass(frozen=True, slots=True)
class Rule:
    """A classification rule: ``claim`` is true unless ``judge`` returns a missing fact."""

    claim: str
    judge: Callable[[CacheCase], Classification | str]


def classify(case: CacheCase) -> Classification:
    """Return the classification by the first rule that applies.

    Raises:
        AssertionError: No rule applies; the last one does for every cache.
    """
    for rule in RULES:
        judgement = rule.judge(case)
        if isinstance(judgement, Classification):
            return judgement
    raise AssertionError("expected a classification by the last rule")


def _other(case: CacheCase, role: CacheRole, facts: tuple[str, ...] | str) -> Classification | str:
    return facts if isinstance(facts, str) else case.claim(case.pair.read.index, *facts, kind="other", role=role)


def _constant(case: CacheCase) -> Classification | str:
    graph, present, read = case.graph, case.pair.present, case.pair.read
    if present is not None and look_through_moves(graph, present) != case.pair.past:
        return f"the present is made by {case.maker.called}"
    written = "written back unchanged" if present is not None else "never written"
    if direct := _read_as_given(case):
        return _cross(case, direct, written)
    unread = "no recognized attention reads it as key or value"
    start = graph.producer(look_through_moves(graph, read.source())) if read.inputs else read
    if start == read or start.op != "Parameter":
        return case.claim(read.index, written, unread, axes=Axes(batch=0))
    products = names(step.node for read in case.reads for step in read.path if step.kind == "weights")
    use = f"keys and values are computed from it by {products}" if products else unread
    facts = (f"starts as an input of the model, {written}", use)
    return case.claim(read.index, *facts, kind="cross", role="encoder_hidden", axes=Axes(batch=0))


def _inside(case: CacheCase) -> Classification | str:
    inner = inside_operator(case.graph, case.cache, case.pair)
    if inner is None:
        return f"the present is made by {case.maker.called}, which does not update this past internally"
    cache, node = inner
    return Classification(cache, case.graph.depths[node.index], (node.index,) if cache.kind == "kv" else ())


def _kept(case: CacheCase) -> Classification | str:
    """Classify a cache that is updated along the axis of positions that attention reads.

    Returns:
        The classification, or the reason why the rule does not apply.
    """
    graph, reads = case.graph, tuple(read for read in case.reads if "sequence" in read.labels)
    if not case.updates:
        return "the present is not the past after a Concat or a scatter operator"
    ordered = sorted(case.updates, key=lambda update: not update.appends)
    along = f"{ordered[0].node.called} updates it along axis {' or '.join(map(str, ordered[0].axes))}"
    if not reads:
        return f"{along}, but no recognized attention reads it by position"
    match = next(((read, update) for update in ordered for read in reads if _keeps_what_is_read(read, update)), None)
    if match is None:
        axis = reads[0].labels.index("sequence")
        return f"{along}, but {reads[0].attention.node.called} reads positions along axis {axis}"
    read, update = match
    contents = tuple(read for read in reads if not read.has("scale", "zero_point"))
    readers = tuple(sorted({read.attention.node.index for read in contents or reads}))
    steps = [step for read in contents for step in read.path]
    # A slice along an axis other than sequence and heads selects a layer.
    takes_layers = any(
        step.kind == "part" or (step.kind == "slice" and {None, "part"} & {*step.labels}) for step in steps
    )
    spans = any(takes_part_in_turn(graph, step) for step in steps) or (len(readers) > 1 and takes_layers)
    return case.claim(
        readers[0],
        update_text(graph, case.pair, update, read.labels.index("sequence")),
        *read_by(contents or reads),
        *notes(contents or reads, is_companion=not contents, spans_layers=spans),
        readers=readers,
        spans_layers=spans,
        kind="kv",
        role=_role(contents),
        axes=axes_of(read.labels, case.cache.shape),
    )


def _role(reads: tuple[Read, ...]) -> CacheRole:
    roles = {read.role for read in reads}
    return roles.pop() if len(roles) == 1 else "unknown"


def _keeps_what_is_read(read: Read, update: Update) -> bool:
    return read.labels.index("sequence") in update.axes and any(step.node == update.node for step in read.path)


def axes_of(labels: Labels, shape: tuple[Dimension, ...] | None) -> Axes:
    """Return the indices of logical axes in ``labels``.

    A latent, from which weights compute all heads, has one head: its axis of size 1, if there is exactly one.

    Args:
        labels: Labels of the cache's axes; ``head_dim`` may be merged with heads.
        shape: Shape of the cache, to find the head of a latent; ``None`` if unknown.
    """
    places = {label: place for place, label in enumerate(labels) if isinstance(label, str)}
    merged = next(
        (place for place, label in enumerate(labels) if "head_dim" in (label if isinstance(label, tuple) else ())), None
    )
    single = [place for place, label in enumerate(labels) if label is None and shape is not None and shape[place] == 1]
    head = single[0] if len(single) == 1 and merged is not None else None
    return Axes(places.get("batch"), places.get("heads", head), places.get("sequence"), places.get("head_dim", merged))


def _indexed(case: CacheCase) -> Classification | str:
    """Classify keys that an indexer scores and that are updated along their sequence axis.

    Returns:
        The classification, or the reason why the rule does not apply.
    """
    selected = case.model.analysis(selections).get(case.pair.read.index, ())
    along = {selection.labels.index("sequence") for selection in selected}
    update = next((update for update in case.updates if along & {*update.axes}), None)
    if update is None or len(along) > 1:
        return "no TopK selects positions by scores computed from it"
    readers = tuple(sorted({selection.attention.index for selection in selected if selection.attention is not None}))
    return case.claim(
        readers[0] if readers else selected[0].node.index,
        update_text(case.graph, case.pair, update, along.pop()),
        f"{names(selection.node for selection in selected)} selects positions by products with it",
        readers=readers,
        kind="kv",
        role="indexer_key",
        axes=axes_of(selected[0].labels, case.cache.shape),
    )


def _growing(case: CacheCase) -> Classification | str:
    """Classify a tensor that grows along an axis that no attention is known to read.

    Returns:
        The classification, or the reason why the rule does not apply.
    """
    concat = appended(case.graph, case.pair)
    if concat is None:
        update = next(
            (candidate for candidate in case.updates if candidate.appends and candidate.cut_after is None), None
        )
        if update is None or len(case.updates) > 1 or len(update.node.inputs) != 2:
            return f"the present is made by {case.maker.called}, not by a Concat of the past and one new part"
        concat, axis = update.node, update.axes[0]
    else:
        axis = concat.attributes["axis"]
    if growth_of(case.model, case.pair.past, case.pair.present)[axis] in {"fixed", "kept"}:
        return f"Concat {concat.name} is written back whole, but is not longer than the past"
    evidence = f"appended along axis {axis} by Concat {concat.name}, which is written back whole"
    read = next((read for read in case.reads if "sequence" in read.labels), None)
    label = read.labels[axis] if read is not None and axis < len(read.labels) else "sequence"
    if label != "sequence":
        missing = f"axis {axis} is the {label} axis of the attention that reads it, not the sequence axis"
        return case.claim(concat.index, evidence, missing)
    missing = "no recognized attention reads the present"
    axes = Axes(batch=_batch(case.graph, case.cache.shape, axis), sequence=axis)
    return case.claim(concat.index, evidence, missing, axes=axes)


def _batch(graph: Graph, shape: tuple[Dimension, ...] | None, sequence: int) -> int | None:
    """Return the axis with the token inputs' batch symbol, or the only other free axis."""
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


def _read_as_given(case: CacheCase) -> tuple[Read, ...]:
    changes = ("weights", "arithmetic", "join", "write", "scale", "zero_point")
    return tuple(read for read in case.reads if "sequence" in read.labels and not read.has(*changes))


def read_only(case: CacheCase) -> Classification | None:
    """Classify an input that attention reads unchanged.

    Returns:
        The classification as ``cross``; ``None`` without such a read.
    """
    direct = _read_as_given(case)
    return _cross(case, direct, "an input of the model, never written") if direct else None


def _cross(case: CacheCase, reads: tuple[Read, ...], evidence: str) -> Classification:
    readers = tuple(sorted({read.attention.node.index for read in reads}))
    role, axes = _CROSS_ROLES.get(_role(reads), "unknown"), axes_of(reads[0].labels, case.cache.shape)
    facts = (evidence, *read_by(reads, "read as the"))
    return case.claim(readers[0], *facts, readers=readers, kind="cross", role=role, axes=axes)


def _state(case: CacheCase) -> Classification | str:
    entered = entered_state(case.graph, case.cache, case.pair)
    if entered is None or case.pair.present is None:
        return "no operator with a recurrent state reads it"
    return Classification(entered, case.graph.depths[case.pair.present.node])


def _replaced(case: CacheCase) -> Classification:
    graph, model, pair = case.graph, case.model, case.pair
    assert pair.present is not None
    producer = graph.producer(pair.present)
    flat = find_flat(graph, pair.read, pair.write) if pair.write is not None else None
    evidence = f"replaced each step by the result of {producer.called}"
    evidence = (updated_in_loop(graph, pair) if flat is None else None) or evidence
    layers = sliced_axes(graph, pair)
    batch = state_batch_axis(model, pair.past, pair.present)
    if batch in layers:
        batch = min((axis for axis in range(len(case.cache.shape or ())) if axis not in layers), default=batch)
    growth = growth_of(model, pair.past, pair.present)
    free = [
        axis for axis, change in enumerate(growth) if change not in {"fixed", "kept"} and axis not in {batch, *layers}
    ]
    if free or not growth:
        where = f"axis {free[0]}" if free else "any axis"
        missing = f"its size is not fixed along {where}, and may depend on the sequence"
        return case.claim(producer.index, evidence, missing)
    role, use = _use(graph, pair.past, flat)
    spanned = (f"several layers in one tensor: {names(layers.values())} selects each layer's part",) if layers else ()
    facts = (evidence, use, "its size depends on the batch alone", *spanned)
    axes = Axes(batch=batch)
    return case.claim(producer.index, *facts, spans_layers=bool(layers), kind="linear", role=role, axes=axes)


def _use(graph: Graph, past: Value, flat: Flat | None) -> tuple[CacheRole, str]:
    if flat is not None:
        return "unknown", f"{len(flat.states)} states in one tensor: {names(flat.takers)} splits them"
    window = shifted_in(graph, past)
    if window is not None:
        return "conv", f"a window: {window.op} {window.name} shifts new columns in"
    return "recurrent", "updated by arithmetic"


#: Rules in the order in which they are applied.
RULES = (
    Rule(
        "no cache: weights that the application sets (LoRA)",
        lambda case: _other(case, "adapter", adapter(case.graph, case.pair)),
    ),
    Rule("no cache: a counter", lambda case: _other(case, "counter", counter(case.graph, case.pair))),
    Rule("cross: computed once, then only read", _constant),
    Rule("an operator updates it internally", _inside),
    Rule("kv: attention reads the positions that are appended or written", _kept),
    Rule("kv: an indexer selects positions by keys that are appended or written", _indexed),
    Rule("appended, but the reader of its positions is unknown", _growing),
    Rule("the state of recurrent operators, through layout operators", _state),
    Rule("linear: replaced each step, with a size that depends on the batch alone", _replaced),
)
