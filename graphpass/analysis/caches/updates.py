"""Find the operators that update caches, and describe updates and reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from graphpass.analysis.attention.axis_trace import PART, Labels, PathStep, TracedValue, TraceStep, before, trace_axes
from graphpass.analysis.attention.reads import Read
from graphpass.analysis.caches.pairs import Pair
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import LOOP_ENTRIES, LOOP_EXITS, inner_state
from graphpass.ir.values import fixed_size

#: Maximum number of values to search, because a cache is updated within its layer.
_LIMIT = 400


Path: TypeAlias = "tuple[PathStep, ...]"


@dataclass(frozen=True, slots=True)
class Update:
    """An operator that appends to a cache or writes into it.

    Attributes:
        node: The operator.
        axes: Axes of the cache along which it appends or writes; candidates if several.
        appends: Whether it is a Concat, which appends; other operators write in place.
        cut_before: The Slice or Split that drops old positions before the operator.
        cut_after: The Slice or Split that drops positions between the operator and the present.
        loop: The cache's entry into the loop whose body contains the operator.
    """

    node: Node
    axes: tuple[int, ...]
    appends: bool
    cut_before: Node | None = None
    cut_after: Node | None = None
    loop: Node | None = None


def find_updates(graph: Graph, pair: Pair) -> tuple[Update, ...]:
    """Return the operators that append to the past of ``pair`` or write into it.

    Args:
        graph: The graph.
        pair: The carried tensor; the result is empty without a present of known rank.
    """
    if pair.present is None or pair.present.rank is None:
        return ()
    updates: dict[tuple[int, tuple[int, ...]], Update] = {}
    for path in _ways(graph, pair.present, pair.past):
        for place, step in enumerate(path):
            axes = tuple(label for label in step.labels if isinstance(label, int))
            if step.kind in {"join", "write"} and axes:
                after, prior = _cut(path[:place], axes), _cut(path[place + 1 :], axes)
                update = Update(step.node, axes, step.kind == "join", prior, after, _entered(path[place + 1 :]))
                updates.setdefault((step.node.index, axes), update)
    return tuple(updates.values())


def _cut(path: Path, axes: Labels) -> Node | None:
    return next((step.node for step in path if step.kind in {"slice", "part"} and set(step.labels) & set(axes)), None)


def _entered(path: Path) -> Node | None:
    """Return the entry into the innermost loop that ``path`` enters but does not leave."""
    left = 0
    for step in path:
        if step.node.op in LOOP_EXITS:
            left += 1
        elif step.node.op in LOOP_ENTRIES:
            if not left:
                return step.node
            left -= 1
    return None


def _ways(graph: Graph, present: Value, past: Value) -> list[Path]:
    """Return the paths from ``present`` upstream to ``past`` on which all axes keep their meaning."""
    start = TracedValue(present, tuple(range(present.rank or 0)))
    ends = [start] if present == past else []

    def steps(place: TracedValue) -> Iterator[TraceStep]:
        if place in ends or inner_state(graph.producer(place.value), present=place.value) is not None:
            return
        for step in before(graph, place.value, place.labels):
            kind = None if step.passed is None else step.passed.kind
            if step.value == past:
                ends.append(
                    TracedValue(past, step.labels, (*place.path, *([] if step.passed is None else [step.passed])))
                )
            elif kind not in {"weights", "scale", "zero_point"}:
                yield step

    for _ in islice(trace_axes(start, steps), _LIMIT):
        pass
    return [end.path for end in ends if all(label in {axis, PART, None} for axis, label in enumerate(end.labels))]


def names(nodes: Iterable[Node]) -> str:
    """Return the names of nodes, joined as in ``MatMul a, MatMul b and MatMul c``."""
    texts = list(dict.fromkeys(node.called for node in nodes))
    return " and ".join((", ".join(texts[:-1]), texts[-1]) if len(texts) > 1 else texts)


def update_text(graph: Graph, pair: Pair, update: Update, axis: int) -> str:
    """Describe how ``update`` changes the cache along ``axis``.

    Args:
        graph: The graph.
        pair: The carried tensor.
        update: One of its updates.
        axis: Index of the sequence axis.

    Returns:
        A clause for `Cache.evidence`.
    """
    node = update.node
    where = f" in each iteration of {update.loop.called}" if update.loop is not None else ""
    if not update.appends:
        size = fixed_size(pair.past, axis)
        room = f", with room for {size} positions" if size is not None else ""
        return f"written in place along axis {axis} by {node.called}{where}{room}"
    text = f"appended along axis {axis} by {node.called}{where}"
    kept = kept_positions(graph, update)
    if kept is None:
        return f"{text}, which is written back whole"
    cut, count = kept
    if count is not None:
        return f"{text}; {cut.op} {cut.name} keeps the last {count}: a window of {count} in the state"
    before = " before it" if cut == update.cut_before else ""
    return f"{text}; {cut.op} {cut.name} drops old positions{before}: a window in the state"


def kept_positions(graph: Graph, update: Update) -> tuple[Node, int | None] | None:
    """Return the operator that drops old positions, and the number kept if known.

    Args:
        graph: The graph.
        update: The update; a Slice or Split before or after its operator may drop positions.

    Returns:
        Operator and number; ``None`` without such an operator.
    """
    if update.cut_after is not None:
        start = _start(graph, update.cut_after)
        if start != 0:
            return update.cut_after, -start if start is not None and start < 0 else None
    if update.cut_before is not None:
        start = _start(graph, update.cut_before)
        if start is not None and start != 0:
            return update.cut_before, None
    return None


def _start(graph: Graph, node: Node) -> int | None:
    cuts = fold_cuts(graph, node)
    return cuts[0].start if len(cuts) == 1 else None


def read_by(reads: tuple[Read, ...], words: str = "the result is the") -> tuple[str, ...]:
    """Return a line for each role in which attention reads a cache.

    Args:
        reads: Reads of the cache.
        words: Beginning of each line, before the role.
    """
    roles = dict.fromkeys(read.role for read in reads)
    return tuple(
        f"{words} {role} of {names(read.attention.node for read in reads if read.role == role)}" for role in roles
    )


def notes(reads: tuple[Read, ...], *, is_companion: bool, spans_layers: bool) -> tuple[str, ...]:
    """Describe further operators between the cache and attention.

    Args:
        reads: Reads of the cache.
        is_companion: Whether it stores scales or zero points of another cache.
        spans_layers: Whether it stores the caches of several layers.

    Returns:
        Lines for `Cache.evidence`.
    """
    lines = []
    if is_companion:
        for kind, words in (("scale", "scale"), ("zero_point", "zero point")):
            if nodes := _nodes(reads, kind):
                lines.append(f"it is the {words} with which {names(nodes)} dequantizes keys or values")
    elif nodes := _nodes(reads, "dequantized"):
        lines.append(f"quantized: {names(nodes)} dequantizes it")
    steps = [step for read in reads for step in read.path]
    parts = [
        step.node for step in steps if step.kind == "part" or (step.kind == "slice" and "sequence" not in step.labels)
    ]
    if spans_layers:
        lines.append(f"several layers in one tensor: {names(parts)} selects each layer's part")
    elif len({read.role for read in reads}) == 2 and parts:
        lines.append(f"keys and values in one tensor: {names(parts)} splits them")
    elif len({read.attention.node.index for read in reads}) > 1:
        lines.append("shared: several attentions read the same positions")
    if nodes := _nodes(reads, "weights"):
        lines.append(f"latent: {names(nodes)} computes keys or values from it after it is read")
    return tuple(lines)


def _nodes(reads: tuple[Read, ...], kind: str) -> list[Node]:
    return [step.node for read in reads for step in read.path if step.kind == kind]
