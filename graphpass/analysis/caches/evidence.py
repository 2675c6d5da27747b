"""Describe how a cache is updated and read."""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.attention.reads import Read
from graphpass.analysis.caches.pairs import Pair
from graphpass.analysis.caches.updates import Update
from graphpass.ir.constants import fold_cuts
from graphpass.ir.graph import Graph, Node

__all__ = ["kept_positions", "names", "notes", "read_by", "update_text"]


def names(nodes: Iterable[Node]) -> str:
    """Join names as in ``MatMul a, MatMul b and MatMul c``."""
    texts = list(dict.fromkeys(node.called for node in nodes))
    return " and ".join((", ".join(texts[:-1]), texts[-1]) if len(texts) > 1 else texts)


def update_text(graph: Graph, pair: Pair, update: Update, axis: int) -> str:
    """Describe how ``update`` changes the cache along ``axis``."""
    node = update.node
    where = f" in each iteration of {update.loop.called}" if update.loop is not None else ""
    if not update.appends:
        size = pair.past.shape[axis] if pair.past.shape is not None else None
        room = f", which has room for {size} positions" if isinstance(size, int) else ""
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
    """Return the operator that drops old positions, and the number that it keeps if known; ``None`` if none does."""
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
    """Return the start of a slice along one axis; ``None`` if it is computed, or there are several axes."""
    found = fold_cuts(graph, node)
    return found[0].start if len(found) == 1 else None


def read_by(reads: tuple[Read, ...], words: str = "the result is the") -> tuple[str, ...]:
    """Return a line for each role in which attention reads a cache, with all readers."""
    roles = dict.fromkeys(read.role for read in reads)
    return tuple(
        f"{words} {role} of {names(read.attention.node for read in reads if read.role == role)}" for role in roles
    )


def notes(reads: tuple[Read, ...], *, is_companion: bool, spans_layers: bool) -> tuple[str, ...]:
    """Describe further operators between the cache and attention."""
    lines = []
    if is_companion:
        for kind, words in (("scale", "scale"), ("zero_point", "zero point")):
            if nodes := _nodes(reads, kind):
                lines.append(f"it is the {words} with which {names(nodes)} dequantizes what attention reads")
    elif nodes := _nodes(reads, "dequantized"):
        lines.append(f"quantized: {names(nodes)} turns it into numbers")
    steps = [step for read in reads for step in read.path]
    parts = [one.node for one in steps if one.kind == "part" or (one.kind == "slice" and "sequence" not in one.labels)]
    if spans_layers:
        lines.append(f"several layers in one tensor: {names(parts)} takes each layer's part")
    elif len({read.role for read in reads}) == 2 and parts:
        lines.append(f"keys and values in one tensor: {names(parts)} takes them apart")
    elif len({read.attention.node.index for read in reads}) > 1:
        lines.append("shared: several attentions read the same positions")
    if nodes := _nodes(reads, "weights"):
        lines.append(f"latent: {names(nodes)} computes keys or values from it after it is read")
    return tuple(lines)


def _nodes(reads: tuple[Read, ...], kind: str) -> list[Node]:
    return [step.node for read in reads for step in read.path if step.kind == kind]
