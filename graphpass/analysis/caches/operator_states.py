"""Recognize caches that an operator holds inside, and states of ordinary recurrent networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from graphpass.analysis.caches.moves import look_through_moves
from graphpass.analysis.caches.pairs import Pair
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.operators import CASTS, LAYOUT, LOOP_ENTRIES, PICKS, STATE_OPERATORS, InnerState, inner_state
from graphpass.ir.types import Dimension

__all__ = ["entered_state", "inside_operator"]

Shape: TypeAlias = tuple[Dimension, ...] | None


def inside_operator(graph: Graph, cache: Cache, pair: Pair) -> tuple[Cache, Node] | None:
    """Return ``cache`` and the operator that makes its present from its past, if one does."""
    assert pair.present is not None
    for value in _alternatives(graph, pair.present):
        node = graph.producer(value)
        for state in STATE_OPERATORS.get(node.op, ()):
            source = node.input(state.past)
            if state.present != value.port or source is None or look_through_moves(graph, source) != pair.past:
                continue
            ports = f"(input {state.past} to output {state.present})"
            evidence = (f"{state.update} {node.op} {node.name} {ports}", *_remarks(node, state))
            axes = _axes(node, state)
            shape = _shape(cache.shape, value.shape, axes)
            return replace(cache, kind=state.kind, role=state.role, axes=axes, shape=shape, evidence=evidence), node
    return None


def _shape(past: Shape, present: Shape, axes: Axes) -> Shape:
    """Complete the shape of ``past`` from ``present``: ONNX Runtime GenAI leaves a head's size open."""
    if past is None or present is None or len(past) != len(present):
        return past
    return tuple(
        new if isinstance(new, int) and not isinstance(old, int) and axis not in {axes.batch, axes.sequence} else old
        for axis, (old, new) in enumerate(zip(past, present, strict=True))
    )


def _alternatives(graph: Graph, value: Value) -> Iterator[Value]:
    """Yield what ``value`` may be, before conversions and the branches that it may come from."""
    pending = [value]
    while pending:
        current = pending.pop()
        node = graph.producer(current)
        if node.op in CASTS | {"If", "Final"}:
            sources = {"If": node.inputs[1:], "Final": node.inputs[:1]}.get(node.op, node.inputs)
            pending.extend(source for source in sources if source is not None)
        else:
            yield current


def _axes(node: Node, state: InnerState) -> Axes:
    if node.op in {"LSTM", "GRU", "RNN"} and node.attributes.get("layout"):
        return Axes(batch=0)
    if node.attributes.get("state_window"):
        # The states after each of the last positions stand one after the other, before the batch.
        return Axes(batch=1)
    return state.axes


def _remarks(node: Node, state: InnerState) -> tuple[str, ...]:
    given = node.attributes
    remarks = []
    if state.kind == "kv" and given.get("sliding_window_cache"):
        remarks.append("the operator keeps no more than its window: a window in the state")
    if given.get("past_present_share_buffer"):
        remarks.append("past and present share one buffer of a fixed capacity")
        if state.role != "value" and node.op.startswith("DecoderMasked"):
            remarks.append("the operator keeps keys in an order of its own within the buffer")
    if given.get("state_window"):
        remarks.append(f"holds the states after each of the last {given['state_window']} positions on axis 0")
    return tuple(remarks)


def entered_state(graph: Graph, cache: Cache, pair: Pair) -> Cache | None:
    """Return ``cache`` if its past, laid out, is the state of recurrent operators, perhaps of several layers."""

    def state_of(use: Use) -> InnerState | None:
        state = inner_state(use.node, past=use.node.inputs[use.port])
        return state if state is not None and state.kind != "kv" and use.port == state.past else None

    laid_out = LAYOUT | PICKS | LOOP_ENTRIES
    uses = graph.forward([pair.past], lambda use: use.node.outputs if use.node.op in laid_out and use.port == 0 else ())
    found = [(use.node, state) for use in uses if (state := state_of(use)) is not None]
    if not found:
        return None
    operators = ", ".join(f"{node.op} {node.name}" for node, _ in found)
    words = f"{found[0][1].update} {operators}, with other operators before or after"
    batches = {_axes(node, state).batch for node, state in found}
    same_rank = cache.shape is not None and all(
        (held := node.inputs[state.past]) is not None and held.rank == len(cache.shape) for node, state in found
    )
    axes = Axes(batch=batches.pop()) if len(batches) == 1 and same_rank else Axes()
    return replace(cache, kind=found[0][1].kind, role=found[0][1].role, axes=axes, evidence=(words,))
