"""Put one fault at a time into a converted model, in either dialect; a proof that finds them all is one.

>>> for fault in faults(model):                                              # doctest: +SKIP
...     assert not compare(reference, fault.put_into(model)).passed          # doctest: +SKIP
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy

import graphpass
from graphpass.analysis.attention.find import Scores, find_attention, find_score_masks, read_scores
from graphpass.analysis.attention.operands import scores_product
from graphpass.analysis.attention.softmax import weighing_product
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.equations.activations import find_activations, mask_values
from graphpass.analysis.equations.angles import find_angles
from graphpass.analysis.lengths.thresholds import find_thresholds
from graphpass.analysis.symbolic.expressions import ZERO
from graphpass.analysis.symbolic.folding import fold, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.operators import COMPARISONS, LAYOUT, SHAPE_READERS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import REALS, fixed_size
from graphpass.ir.writer import Writer

Edit: TypeAlias = Callable[[Rewriter, Writer, Graph], None]
Found: TypeAlias = "Iterator[tuple[str, Edit] | tuple[str, Edit, str]]"

_KINDS: dict[str, Callable[[Model], Found]] = {}


@dataclass(frozen=True)
class Fault:
    """One thing to break.

    Attributes:
        kind: The fault, for people.
        place: The node that has it.
        edit: Puts it into a copy of the model.
        equivalent: Reason that the copy computes the same; empty if it does not.
    """

    kind: str
    place: str
    edit: Edit
    equivalent: str = ""

    def put_into(self, model: Model) -> Model:
        """Return a copy of ``model`` with the fault."""
        mutant = model.clone()
        rewriter = mutant.rewriter()
        self.edit(rewriter, rewriter.under("fault"), mutant.graph)
        rewriter.finish()
        mutant.mark_edited()
        return mutant


def faults(model: Model, turn: int = 0) -> Iterator[Fault]:
    """Yield one fault of each kind that ``model`` has room for.

    Args:
        model: The model.
        turn: Chooses among the places of a kind, so that models take turns at first, last and other layers.
    """
    for number, (kind, find) in enumerate(_KINDS.items()):
        places = list(find(model))
        if places:
            yield Fault(kind, *places[(turn + number) % len(places)])


def fault(kind: str) -> Callable[[Callable[[Model], Found]], Callable[[Model], Found]]:
    """Register a function that yields places and edits; nodes are the same in a copy."""

    def register(find: Callable[[Model], Found]) -> Callable[[Model], Found]:
        _KINDS[kind] = find
        return find

    return register


# --- attention


def _operands(model: Model) -> Iterator[tuple[str, dict[str, tuple[Node, int]], int | None, int | None]]:
    """Yield each attention's name, readers of query, key and value, heads and their size."""
    graph = model.graph
    details = graphpass.analyze_caches(model).attention
    for attention, detail in zip(model.analysis(find_attention), details, strict=True):
        node = attention.node
        readers: dict[str, tuple[Node, int]] = {}
        if attention.is_fused:
            readers = {role: (node, port) for port, role in enumerate(("query", "key", "value"))}
        elif (product := scores_product(graph, node)) is not None:
            readers = {"query": (product, 0), "key": (product, 1)}
            weighing = weighing_product(graph, node)
            if weighing is not None:
                readers["value"] = (weighing, 1)
        readers = {role: (one, port) for role, (one, port) in readers.items() if one.input(port) is not None}
        yield node.name, readers, detail.heads, detail.head_dim


def _changed(reader: tuple[Node, int], change: Callable[[Writer, Any], Any]) -> Edit:
    """Return the edit that changes one input of a node."""
    index, port = reader[0].index, reader[1]

    def edit(rewriter: Rewriter, write: Writer, graph: Graph) -> None:
        node = graph.nodes[index]
        rewriter.redirect(node, port, change(write, node.source(port)))

    return edit


def _times(factor: float) -> Callable[[Writer, Value], Any]:
    return lambda write, value: write.op("Multiply", value, write.number(factor, value.element_type))


@fault("scale by 0.1 %")
def _(model: Model) -> Found:
    for name, readers, _, _ in _operands(model):
        if "query" in readers:
            yield name, _changed(readers["query"], _times(1.001))


@fault("heads swapped")
def _(model: Model) -> Found:
    for name, readers, heads, size in _operands(model):
        value = readers["query"][0].source(readers["query"][1]) if "query" in readers else None
        if value is None or heads is None or size is None or heads < 2:
            continue
        if value.rank == 4:
            order = [1, 0, *range(2, heads)]
            yield (
                name,
                _changed(readers["query"], lambda write, one, order=order: write.op("Gather", one, order, axis=1)),
            )
        elif value.rank == 3 and isinstance(width := fixed_size(value, 2), int):
            order = [*range(size, 2 * size), *range(size), *range(2 * size, width)]
            yield (
                name,
                _changed(readers["query"], lambda write, one, order=order: write.op("Gather", one, order, axis=2)),
            )


@fault("key of another layer")
def _(model: Model) -> Found:
    yield from _of_another(model, "key")


@fault("value of another layer")
def _(model: Model) -> Found:
    yield from _of_another(model, "value")


def _of_another(model: Model, role: str) -> Found:
    known = [(name, readers[role]) for name, readers, _, _ in _operands(model) if role in readers]
    for (_, (first, port)), (name, reader) in itertools.pairwise(known):
        earlier, own = first.source(port), reader[0].source(reader[1])
        if (earlier.rank, fixed_size(earlier, -1)) == (own.rank, fixed_size(own, -1)):
            yield name, _changed(reader, lambda write, _, earlier=earlier: earlier)


@fault("scale of a key's first head by 1 %")
def _(model: Model) -> Found:
    for name, readers, _, _ in _operands(model):
        value = readers["key"][0].source(readers["key"][1]) if "key" in readers else None
        heads = fixed_size(value, 1) if value is not None and value.rank == 4 else None
        if value is not None and heads is not None and heads > 1:
            factors = numpy.array([1.01, *[1] * (heads - 1)], numpy.float32).reshape(1, heads, 1, 1)
            kind = value.element_type
            yield (
                name,
                _changed(
                    readers["key"],
                    lambda write, one, factors=factors, kind=kind: write.op(
                        "Multiply", one, write.constant(factors, element_type=kind)
                    ),
                ),
            )


# --- masks


def _mask_readers(model: Model) -> Iterator[tuple[str, Node, int, Value]]:
    """Yield readers of each attention's masks."""
    graph = model.graph
    for attention, masks in zip(model.analysis(find_attention), model.analysis(find_score_masks), strict=True):
        for mask in () if isinstance(masks, Miss) else masks:
            for use in graph.uses(mask.value):
                if use.node is attention.node or _leads_to(graph, use.node, attention.node):
                    yield attention.node.name, use.node, use.port, mask.value
                    break


def _leads_to(graph: Graph, node: Node, softmax: Node) -> bool:
    way = LAYOUT | {"Add", "Subtract", "Select", "Maximum", "Multiply", "Divide", "Concat"}
    near = graph.backward([softmax.source()], lambda one: one.inputs if one.op in way else ())
    return any(one.index == node.index for one in near) and node.op in way


@fault("causal lost for one layer")
def _(model: Model) -> Found:
    for name, node, port, mask in _mask_readers(model):
        if mask.element_type == "boolean":
            keeps = not (node.op == "Select" and _fills_if_true(model.graph, node))

            def change(write: Writer, one: Value, keeps: bool = keeps) -> Any:
                return write.op("LogicalOr" if keeps else "LogicalAnd", one, write.op("LogicalNot", one))

            yield name, _changed((node, port), change)
        else:
            yield name, _changed((node, port), _times(0.0))


def _fills_if_true(graph: Graph, select: Node) -> bool:
    held = fold(graph, select.source(1))
    return held is not None and held.size == 1


@fault("mask off by one")
def _(model: Model) -> Found:
    for node in _compared(model):
        lesser, equal = COMPARISONS[node.op]
        kind = next(op for op, meaning in COMPARISONS.items() if meaning == (lesser, 1 - equal) and "Or" not in op)
        index = node.index

        def edit(rewriter: Rewriter, write: Writer, graph: Graph, kind: str = kind, index: int = index) -> None:
            node = graph.nodes[index]
            rewriter.replace(node.outputs[0], write.op(kind, *node.inputs))

        yield node.name, edit


def _compared(model: Model) -> Iterator[Node]:
    graph = model.graph
    for node in graph.backward(mask_values(model), lambda node: () if node.op in SHAPE_READERS else node.inputs):
        counts = all(value is not None and value.element_type not in REALS for value in node.inputs)
        if node.op in COMPARISONS and counts and node.index not in model.analysis(find_activations):
            yield node


def _attribute(name: str, change: Callable[[Any], Any]) -> Callable[[Model], Found]:
    """Return a fault of an operator's attribute, in ONNX."""

    def find(model: Model) -> Found:
        for node in model.graph.nodes if model.dialect == "onnx" else ():
            if (node.attributes.get(name) or -1) > 0:

                def edit(rewriter: Any, write: Writer, graph: Graph, called: str = node.name) -> None:
                    native = next(one for one in rewriter.surgery.graph.nodes if one.name == called)
                    native.attrs[name] = change(native.attrs[name])

                yield node.name, edit

    return find


fault("window attribute + 1")(_attribute("local_window_size", lambda size: size + 1))
fault("window attribute - 1")(_attribute("local_window_size", lambda size: size - 1))
fault("epsilon attribute")(_attribute("epsilon", lambda number: 10 * number))
fault("scale attribute by 0.1 %")(_attribute("scale", lambda number: 1.001 * number))


def _by_one(sign: int) -> Callable[[Model], Found]:
    def find(model: Model) -> Found:
        graph = model.graph
        names = {threshold.node: threshold.length for threshold in find_thresholds(model) if not threshold.ends}
        for node in graph.nodes:
            for port, value in enumerate(node.inputs if node.name in names else ()):
                number = None if value is None else fold_scalar(graph, value)
                if number is not None and abs(number) == names[node.name]:
                    moved = number + sign * (1 if number > 0 else -1)
                    kind = value.element_type
                    yield (
                        node.name,
                        _changed((node, port), lambda write, _, moved=moved, kind=kind: write.number(moved, kind)),
                    )

    return find


fault("window + 1")(_by_one(1))
fault("window - 1")(_by_one(-1))


@fault("padding let in")
def _(model: Model) -> Found:
    mask = model.graph.parameters.get("attention_mask")
    readers = [use for use in model.graph.uses(mask) if use.node.op != "ShapeOf"] if mask is not None else []
    if mask is not None and readers and mask.rank == 2:

        def edit(rewriter: Rewriter, write: Writer, graph: Graph) -> None:
            own = graph.parameters["attention_mask"]
            one = write.number(1 if own.element_type not in REALS else 1.0, own.element_type)
            ones = write.op("Maximum", own, one)
            rewriter.redirect_uses(own, ones, lambda use: use.node.op != "ShapeOf")

        yield "attention_mask", edit


@fault("positions' bias by 1 %")
def _(model: Model) -> Found:
    biased = {mask.node.name for mask in model.analysis(find_masks) if mask.bias is not ZERO}
    for name, node, port, mask in _mask_readers(model):
        if mask.element_type in REALS and name in biased:
            yield name, _changed((node, port), _times(1.01))


def _ends_before(model: Model, count: int) -> bool:
    """Return whether a table of positions ends first, so that a fault from ``count`` on is none."""
    ends = [threshold.length for threshold in find_thresholds(model) if threshold.ends]
    ends += [angles.rows for angles in model.analysis(find_angles) if angles.rows is not None]
    return any(end <= count for end in ends)


# --- angles


def _angle_readers(model: Model) -> Iterator[tuple[str, Node, int, Value]]:
    graph, data = model.graph, model.analysis(find_activations)
    for angles in model.analysis(find_angles):
        for table in angles.tables:
            for use in graph.uses(table.value) if table.axis is not None else ():
                if use.node.op == "Multiply" and use.node.index in data:
                    yield use.node.name, use.node, use.port, table.value


@fault("an angle's sign")
def _(model: Model) -> Found:
    for name, node, port, _ in _angle_readers(model):
        yield name, _changed((node, port), _times(-1.0))


@fault("cosines and sines exchanged")
def _(model: Model) -> Found:
    for (name, node, port, one), (_, _, _, other) in itertools.pairwise(_angle_readers(model)):
        if one != other and one.shape == other.shape:
            yield name, _changed((node, port), lambda write, _, other=other: other)


def _angles_from(count: int) -> Callable[[Model], Found]:
    """Change one factor of a query or key by 10 % once there are more than ``count`` positions."""

    def find(model: Model) -> Found:
        mask = model.graph.parameters.get("attention_mask")
        if mask is None or mask.rank != 2 or _ends_before(model, count):
            return
        for name, node, port, _ in _angle_readers(model):

            def change(write: Writer, one: Value, mask: Value = mask) -> Any:
                is_late = write.op("Greater", write.size(mask, 1), count)
                kind = one.element_type
                return write.op(
                    "Multiply", one, write.op("Select", is_late, write.number(0.9, kind), write.number(1.0, kind))
                )

            yield name, _changed((node, port), change)

    return find


for _count in (100, 3000, 20000):
    fault(f"angles changed from {_count} on")(_angles_from(_count))


def _moved(change: Callable[[Writer, Graph, Value], Value], least: int = 1) -> Callable[[Model], Found]:
    """Change positions of ``least`` and more, if the model takes any."""

    def find(model: Model) -> Found:
        positions = model.graph.parameters.get("position_ids")
        if positions is None or positions.element_type not in {"i32", "i64"} or _ends_before(model, least):
            return

        def edit(rewriter: Rewriter, write: Writer, graph: Graph) -> None:
            own = graph.parameters["position_ids"]
            rewriter.redirect_uses(own, change(write, graph, own), lambda use: use.node.op != "ShapeOf")

        if any(use.node.op != "ShapeOf" for use in model.graph.uses(positions)):
            yield "position_ids", edit

    return find


def _by_past(write: Writer, graph: Graph, own: Value) -> Value:
    past = write.op("Subtract", write.size(graph.parameters["attention_mask"], 1), write.size(token_input(graph), 1))
    return write.op("Add", own, write.convert(write.op("Minimum", past, [1]), own.element_type))


def _late_by_one(write: Writer, _: Graph, own: Value) -> Value:
    late, early = (write.op(op, own, write.number(end, own.element_type)) for op, end in _LATE)
    return write.op("Add", own, write.convert(write.op("LogicalAnd", late, early), own.element_type))


#: Positions that are one more.
_LATE = ("GreaterEqual", 3000), ("Less", 3900)


def _clamped(write: Writer, _: Graph, own: Value) -> Value:
    return write.op("Minimum", own, write.number(40_000, own.element_type))


def _rounded_to(element_type: str) -> Callable[[Writer, Graph, Value], Value]:
    def rounded(write: Writer, _: Graph, own: Value) -> Value:
        # Conversions between integers and f16 may be folded; those of f32 are kept.
        real = write.convert(write.convert(write.convert(own, "f32"), element_type), "f32")
        return write.convert(real, own.element_type)

    return rounded


def _wrapped_at(element_type: str) -> Callable[[Writer, Graph, Value], Value]:
    return lambda write, _, own: write.convert(write.convert(own, element_type), own.element_type)


for _kind, _change, _least in (
    ("position + 1 after a past", _by_past, 1),
    ("positions from 3000 to 3899 one more", _late_by_one, 3000),
    ("positions clamped at 40000", _clamped, 40_000),
    ("positions rounded to f16", _rounded_to("f16"), 2049),
    ("positions rounded to bf16", _rounded_to("bf16"), 257),
    ("positions in 8 bits", _wrapped_at("i8"), 128),
    ("positions in 16 bits", _wrapped_at("i16"), 32_768),
):
    fault(_kind)(_moved(_change, _least))


# --- caches


def _caches(model: Model, *kinds: str) -> Iterator[Any]:
    graph = model.graph
    for cache in analyze_caches(model).caches:
        if cache.kind in kinds and cache.write is not None and cache.write in graph.writes:
            yield cache


def _written(change: Callable[[Writer, Value, Any], Any], *kinds: str, role: str = "") -> Callable[[Model], Found]:
    """Return a fault of what is written to one cache."""

    def find(model: Model) -> Found:
        graph = model.graph
        for cache in _caches(model, *kinds):
            if role in {"", cache.role}:
                node = graph.writes[cache.write]
                yield cache.name, _changed((node, 0), lambda write, one, cache=cache: change(write, one, cache))

    return find


def _first_two_exchanged(write: Writer, value: Value, cache: Any) -> Any:
    axis = cache.axes.sequence
    size = write.size(value, axis)
    last = write.op("Subtract", size, [1])
    first = write.op("Minimum", write.constant([1, 0]), last)
    rest = write.op(
        "Range", write.op("Squeeze", write.op("Minimum", size, [2]), axes=[0]), write.op("Squeeze", size, axes=[0]), 1
    )
    order = write.slice(write.op("Concat", first, rest, axis=0), 0, size, axis=0)
    return write.op("Gather", value, order, axis=axis)


fault("slot order changed in keys")(_written(_first_two_exchanged, "kv", role="key"))
fault("slot order changed in values")(_written(_first_two_exchanged, "kv", role="value"))


def _moved_by_one(write: Writer, value: Value, cache: Any) -> Any:
    axis = cache.axes.sequence
    return write.op("Concat", write.slice(value, 1, None, axis), write.slice(value, -1, None, axis), axis=axis)


fault("cut by one more")(_written(_moved_by_one, "kv"))


def _rows_turned(write: Writer, value: Value, cache: Any) -> Any:
    size = write.op("Squeeze", write.size(value, cache.axes.batch), axes=[0])
    order = write.op("Range", write.op("Subtract", size, 1), -1, -1)
    return write.op("Gather", value, order, axis=cache.axes.batch)


fault("rows of a cache exchanged")(_written(_rows_turned, "kv", "linear"))


def _window_shifted(write: Writer, value: Value, cache: Any) -> Any:
    sizes = {axis: size for axis in range(value.rank or 0) if (size := fixed_size(value, axis)) and size > 1}
    axis = min(sizes, key=lambda one: sizes[one])
    return write.op("Concat", write.slice(value, 1, None, axis), write.slice(value, 0, 1, axis), axis=axis)


fault("conv window shifted")(_written(_window_shifted, "linear", role="conv"))
fault("recurrent state by 1 %")(_written(lambda write, one, _: _times(1.01)(write, one), "linear", role="recurrent"))


@fault("a present of another layer")
def _(model: Model) -> Found:
    graph = model.graph
    caches = list(_caches(model, "kv", "linear"))
    for one, other in itertools.permutations(caches, 2):
        if (one.role, one.kind, one.shape) == (other.role, other.kind, other.shape) and one.role != "unknown":
            source = graph.writes[other.write].source()
            yield one.name, _changed((graph.writes[one.write], 0), lambda write, _, source=source: source)


@fault("a key cache and a value cache of two layers exchanged")
def _(model: Model) -> Found:
    graph = model.graph
    keys, values = ([cache for cache in _caches(model, "kv") if cache.role == role] for role in ("key", "value"))
    for key, value in itertools.product(keys, values):
        if key.layer != value.layer and key.shape == value.shape:
            writes = [graph.writes[cache.write] for cache in (key, value)]

            def edit(rewriter: Rewriter, write: Writer, graph: Graph, writes: list[Node] = writes) -> None:
                nodes = [graph.nodes[node.index] for node in writes]
                for node, source in zip(nodes, [node.source() for node in reversed(nodes)], strict=True):
                    rewriter.redirect(node, 0, source)

            yield key.name, edit


@fault("key and value caches exchanged")
def _(model: Model) -> Found:
    graph = model.graph
    caches = {(cache.layer, cache.role): cache for cache in _caches(model, "kv")}
    for (layer, role), cache in caches.items():
        other = caches.get((layer, "value")) if role == "key" and layer is not None else None
        if other is not None and cache.shape == other.shape:
            source = graph.writes[other.write].source()
            yield cache.name, _changed((graph.writes[cache.write], 0), lambda write, _, source=source: source)


@fault("a cache is not written")
def _(model: Model) -> Found:
    graph = model.graph
    if not any(True for _ in graph.of_op("Assign")):
        return
    for cache in _caches(model, "kv", "linear"):
        source = graph.reads[cache.read].outputs[0]
        yield cache.name, _changed((graph.writes[cache.write], 0), lambda write, _, source=source: source)


@fault("beam Gather gone")
def _(model: Model) -> Found:
    graph = model.graph
    for cache in _caches(model, "kv", "linear"):
        read = graph.reads[cache.read].outputs[0]
        for use in graph.uses(read):
            index = use.node.input(1) if use.node.op == "Gather" and use.port == 0 else None
            if index is not None and "beam_idx" in {
                node.name for node in graph.backward([index], lambda node: node.inputs)
            }:
                number = use.node.index

                def edit(rewriter: Rewriter, write: Writer, graph: Graph, number: int = number) -> None:
                    node = graph.nodes[number]
                    rewriter.redirect_uses(node.outputs[0], rewriter.native(node.source()))

                yield cache.name, edit


@fault("stale initial state")
def _(model: Model) -> Found:
    for cache in _caches(model, "linear"):
        node = model.graph.reads[cache.read]
        if node.op == "ReadValue" and node.input(0) is not None:
            yield (
                cache.name,
                _changed((node, 0), lambda write, one: write.op("Add", one, write.number(0.5, one.element_type))),
            )


@fault("a cache begins with a position")
def _(model: Model) -> Found:
    graph = model.graph
    for cache in _caches(model, "kv"):
        node = graph.reads[cache.read]
        filled = graph.producer(node.source()) if node.op == "ReadValue" and node.inputs else node
        sizes = graph.producer(filled.source(1)) if filled.op == "Broadcast" else filled
        for port, value in enumerate(sizes.inputs if sizes.op == "Concat" else ()):
            if fold_scalar(graph, value) == 0:
                yield cache.name, _changed((sizes, port), lambda write, _: write.constant([1]))


# --- layers


def _weighed(model: Model) -> Iterator[tuple[Node, int]]:
    """Yield products with weights."""
    data = model.analysis(find_activations)
    for node in model.graph.of_op("MatMul"):
        ports = [port for port, value in enumerate(node.inputs) if value is not None and value.node not in data]
        if len(ports) == 1 and len(node.source(ports[0]).shape or ()) == 2:
            yield node, ports[0]


@fault("two layers' weights exchanged")
def _(model: Model) -> Found:
    known = list(_weighed(model))
    for number, (one, port) in enumerate(known):
        for other, place in known[number + 1 :]:
            mine, its = one.source(port), other.source(place)
            if mine.shape == its.shape and _role(one) == _role(other) and mine != its:
                indices = one.index, other.index

                def edit(
                    rewriter: Rewriter,
                    write: Writer,
                    graph: Graph,
                    indices: tuple[int, int] = indices,
                    ports: tuple[int, int] = (port, place),
                ) -> None:
                    nodes = [graph.nodes[index] for index in indices]
                    sources = [node.source(own) for node, own in zip(nodes, ports, strict=True)]
                    handles = [rewriter.native(source) for source in sources]
                    for node, own, handle in zip(nodes, ports, handles[::-1], strict=True):
                        rewriter.redirect(node, own, handle)

                yield f"{one.name} and {other.name}", edit
                break


def _role(node: Node) -> str:
    return "".join(letter for letter in node.name if not letter.isdigit())


@fault("half of a product's inputs by 2 %")
def _(model: Model) -> Found:
    # All of them by one factor is nothing before a norm.
    for node, port in _weighed(model):
        value = node.source(1 - port)
        size = fixed_size(value, -1)
        if size is not None and size > 1:
            factors = numpy.where(numpy.arange(size) % 2, 1.02, 1.0).astype(numpy.float32)

            def change(write: Writer, one: Value, factors: Any = factors) -> Any:
                return write.op("Multiply", one, write.constant(factors, element_type=one.element_type))

            yield node.name, _changed((node, 1 - port), change)


@fault("eps")
def _(model: Model) -> Found:
    graph, data = model.graph, model.analysis(find_activations)
    for node in graph.of_op("Add"):
        for port, value in enumerate(node.inputs):
            number = fold_scalar(graph, value) if value is not None else None
            before = graph.producer(node.source(1 - port)).op
            if number is not None and 0 < number < 1e-3 and node.index in data and before.startswith("Reduce"):
                kind = value.element_type
                yield (
                    node.name,
                    _changed((node, port), lambda write, _, to=10 * number, kind=kind: write.number(to, kind)),
                )


@fault("a residual dropped")
def _(model: Model) -> Found:
    graph, data = model.graph, model.analysis(find_activations)
    for node in graph.of_op("Add"):
        if all(value is not None and value.node in data and value.rank == 3 for value in node.inputs):
            index = node.index

            def edit(rewriter: Rewriter, write: Writer, graph: Graph, index: int = index) -> None:
                node = graph.nodes[index]
                rewriter.redirect_uses(node.outputs[0], rewriter.native(node.source(1)))

            yield node.name, edit


@fault("a bias dropped")
def _(model: Model) -> Found:
    graph, data = model.graph, model.analysis(find_activations)
    for node in graph.of_op("Add"):
        for port, value in enumerate(node.inputs):
            held = (
                graph.constant(value) if value is not None and value.node not in data and node.index in data else None
            )
            if held is not None and held.size > 1 and numpy.abs(held.astype(numpy.float32)).max() > 1e-2:
                yield node.name, _changed((node, port), _times(0.0))


@fault("another activation")
def _(model: Model) -> Found:
    graph, data = model.graph, model.analysis(find_activations)
    for node in graph.of_op("Sigmoid", "Swish", "Gelu", "Erf", "Relu", "Tanh"):
        if node.index in data:
            other, index = ("Tanh" if node.op != "Tanh" else "Sigmoid"), node.index

            def edit(rewriter: Rewriter, write: Writer, graph: Graph, other: str = other, index: int = index) -> None:
                node = graph.nodes[index]
                rewriter.replace(node.outputs[0], write.op(other, node.source()))

            yield node.name, edit


@fault("an expert chosen wrongly")
def _(model: Model) -> Found:
    graph = model.graph
    for node in graph.of_op("TopK"):
        count = fixed_size(node.source(), -1)
        # Of all elements, the same are chosen in any order.
        if count is not None and count > 1 and fold_scalar(graph, node.source(1)) != count:
            # The scores of two experts are exchanged.
            order = [1, 0, *range(2, count)]
            axis = (node.source().rank or 1) - 1
            yield (
                node.name,
                _changed(
                    (node, 0), lambda write, one, order=order, axis=axis: write.op("Gather", one, order, axis=axis)
                ),
            )


@fault("a soft cap by 10 %")
def _(model: Model) -> Found:
    graph = model.graph
    for attention in model.analysis(find_attention):
        scores = read_scores(graph, attention.node) if attention.node.op == "Softmax" else None
        if isinstance(scores, Scores) and scores.cap is not None:
            yield scores.cap.name, _changed((scores.cap, 0), _times(1.1))


@fault("an attention sink changed")
def _(model: Model) -> Found:
    graph = model.graph
    for attention in model.analysis(find_attention):
        if attention.sink is not None:
            use = graph.uses(attention.sink)[0]
            yield (
                attention.node.name,
                _changed(
                    (use.node, use.port), lambda write, one: write.op("Add", one, write.number(0.5, one.element_type))
                ),
            )
