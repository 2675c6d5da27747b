"""Recognize carried tensors that attention does not read: states, windows, adapter weights, counters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from typing import TypeAlias

from graphpass.analysis.caches.pairs import Pair, look_through_moves
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.operators import (
    CASTS,
    GATHERS,
    KEEPS_ORDER,
    LAYOUT,
    LOOP_ENTRIES,
    MOVES,
    PICKS,
    SCATTERS,
    SLICES,
    STATE_OPERATORS,
    InnerState,
    inner_state,
    quantized_bits,
    stores_window,
)
from graphpass.ir.types import Dimension
from graphpass.ir.values import INTEGERS, fixed_size

#: Operators before the update of a window: conversions, reordering by beam index, slices.
_WAY = CASTS | SLICES | {"Gather"}

Shape: TypeAlias = tuple[Dimension, ...] | None


def inside_operator(graph: Graph, cache: Cache, pair: Pair) -> tuple[Cache, Node] | None:
    """Return ``cache`` and the operator that updates it internally; ``None`` without one.

    Args:
        graph: The graph.
        cache: The cache of ``pair``; the result has kind, role, axes, shape, bits and evidence by the operator.
        pair: A carried tensor with a present.

    Raises:
        UnsupportedError: GP310, the operator requires a past of more axes.
    """
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
            rank, expected = len(cache.shape or ()), 1 + max(axis for axis in astuple(axes) if axis is not None)
            if cache.shape is not None and rank < expected:
                reason = f"the past {source.name} of {node.called} has {rank} axes, expected {expected}"
                raise UnsupportedError("GP310", f"the model is not valid: {reason}")
            shape = with_fixed_sizes(cache.shape, value.shape, axes)
            bits = quantized_bits(node)
            known = replace(cache, kind=state.kind, role=state.role, axes=axes, shape=shape, evidence=evidence)
            return replace(known, bits=bits), node
    return None


def with_fixed_sizes(past: Shape, present: Shape, axes: Axes) -> Shape:
    """Return ``past`` with free dimensions replaced by fixed ones of ``present``, except batch and sequence.

    Models of ONNX Runtime GenAI declare a free head_dim.

    Args:
        past: Shape of a cache before the step.
        present: Its shape after the step.
        axes: Axes of the cache.
    """
    if past is None or present is None or len(past) != len(present):
        return past
    return tuple(
        new if isinstance(new, int) and not isinstance(old, int) and axis not in {axes.batch, axes.sequence} else old
        for axis, (old, new) in enumerate(zip(past, present, strict=True))
    )


def _alternatives(graph: Graph, value: Value) -> Iterator[Value]:
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
        # Axis 0 indexes the states after each of the last positions.
        return Axes(batch=1)
    return state.axes


def _remarks(node: Node, state: InnerState) -> tuple[str, ...]:
    attributes = node.attributes
    remarks = []
    if state.kind == "kv" and stores_window(node):
        remarks.append("the operator stores only its window: a window in the state")
    if attributes.get("past_present_share_buffer"):
        remarks.append("past and present share one buffer of a fixed capacity")
        if state.role != "value" and node.op.startswith("DecoderMasked"):
            remarks.append("the operator stores keys in its own order within the buffer")
    if (bits := quantized_bits(node)) is not None:
        packed = ", two in each byte" if bits == 4 else ""
        remarks.append(f"the operator stores values of {bits} bits{packed}, multiplied by a scale")
    if attributes.get("state_window"):
        remarks.append(
            f"the operator stores the states after each of the last {attributes['state_window']} positions on axis 0"
        )
    return tuple(remarks)


def entered_state(graph: Graph, cache: Cache, pair: Pair) -> Cache | None:
    """Return ``cache`` if recurrent operators read its past, through layout operators, as state.

    Args:
        graph: The graph.
        cache: The cache of ``pair``; the result has kind, role, axes and evidence by these operators.
        pair: The carried tensor.

    Returns:
        The classified cache; ``None`` without such operators.
    """

    def state_of(use: Use) -> InnerState | None:
        state = inner_state(use.node, past=use.node.inputs[use.port])
        return state if state is not None and state.kind != "kv" and use.port == state.past else None

    laid_out = LAYOUT | PICKS | LOOP_ENTRIES
    uses = graph.forward([pair.past], lambda use: use.node.outputs if use.node.op in laid_out and use.port == 0 else ())
    states = [(use.node, state) for use in uses if (state := state_of(use)) is not None]
    if not states:
        return None
    operators = ", ".join(f"{node.op} {node.name}" for node, _ in states)
    words = f"{states[0][1].update} {operators}, with other operators before or after"
    batches = {_batch_before(graph, pair.past, node.source(state.past), _axes(node, state)) for node, state in states}
    axes = Axes(batch=batches.pop()) if len(batches) == 1 else Axes()
    return replace(cache, kind=states[0][1].kind, role=states[0][1].role, axes=axes, evidence=(words,))


def _batch_before(graph: Graph, past: Value, state: Value, axes: Axes) -> int | None:
    """Return the axis of ``past`` that becomes the batch axis of ``state``; ``None`` if unknown."""
    batch, value = axes.batch, state
    while value != past:
        node = graph.producer(value)
        order = node.attributes.get("order", ()) if node.op == "Transpose" else range(value.rank or 0)
        if batch is None or batch >= len(order) or node.source().rank != value.rank:
            return None
        batch, value = order[batch], node.source()
    return batch


def shifted_in(graph: Graph, past: Value, *, in_loops: bool = True) -> Node | None:
    """Return the Concat or Roll that shifts new columns into a convolution's window.

    The windows of all layers may be stacked in one tensor, as for Mamba-2 in transformers 4.57. Each new window is then
    written into the stack.

    Args:
        graph: The graph.
        past: A state before the step.
        in_loops: Whether to include bodies of loops, which shift once per token.

    Returns:
        The operator, which may be a fused CausalConvWithState; ``None`` without one.
    """
    stack = _stack_of(graph, past)
    way = _WAY | (LOOP_ENTRIES if in_loops else frozenset()) | (SCATTERS if stack is not None else frozenset())
    starts = (past,) if stack is None else stack.outputs
    uses = graph.forward(starts, lambda use: use.node.outputs if use.node.op in way and use.port == 0 else ())
    return next((use.node for use in uses if use.node.op in {"Concat", "Roll", "CausalConvWithState"}), None)


def _stack_of(graph: Graph, past: Value) -> Node | None:
    """Return the Concat that stacks ``past`` with the pasts of other layers."""
    for use in graph.uses(past):
        for stacked in graph.uses(use.node.outputs[0]) if use.node.op == "Unsqueeze" else ():
            if stacked.node.op == "Concat" and all(
                source is not None
                and graph.producer(source).op == "Unsqueeze"
                and fixed_size(source, stacked.node.attributes["axis"]) == 1
                for source in stacked.node.inputs
            ):
                return stacked.node
    return None


def adapter(graph: Graph, pair: Pair) -> tuple[str, ...] | str:
    """Return evidence that ``pair`` stores weights of the application (LoRA), or the missing fact.

    A variable without initial value that no step changes stores weights of the application. A cache that is computed
    once has an initial value.

    Args:
        graph: The graph.
        pair: The carried tensor.

    Returns:
        A tuple with the evidence, or a string with the missing fact.
    """
    if pair.read.op != "ReadValue":
        return "it is an input of the model, not a variable"
    if pair.read.inputs:
        return "the variable has an initial value"
    if pair.present is not None and look_through_moves(graph, pair.present) != pair.past:
        return "a step changes it"
    written = "no step writes it" if pair.present is None else "each step writes it back unchanged"
    laid_out = graph.forward([pair.past], lambda use: use.node.outputs if use.node.op in MOVES else ())
    use = next((use.node for use in laid_out if use.node.op in {"MatMul", "Multiply"}), None)
    origin = f"it has no initial value, and {written}, so the application sets its value"
    return (origin,) if use is None else (origin, f"{use.op} {use.name} uses it like a weight: an adapter (LoRA)")


def counter(graph: Graph, pair: Pair) -> tuple[str, ...] | str:
    """Return evidence that ``pair`` is a counter, or the missing fact.

    Args:
        graph: The graph.
        pair: The carried tensor.

    Returns:
        As `adapter`.
    """
    shape = pair.past.shape
    if shape is None or len(shape) > 1:
        return f"it is not a single number: its rank is {pair.past.rank or 'unknown'}"
    if pair.past.element_type not in INTEGERS:
        return f"it is not an integer: {pair.past.element_type}"

    def lays_out(node: Node) -> bool:
        return node.op in KEEPS_ORDER | GATHERS and pair.past not in node.outputs

    present = graph.look_through(pair.present, lays_out) if pair.present is not None else pair.past
    node = graph.producer(present)
    operands = [graph.look_through(source, lays_out) for source in node.sources]
    if node.op not in {"Add", "Subtract"} or pair.past not in operands:
        return "no step adds to it"
    size = "one integer" if not shape or shape[0] == 1 else "one integer per row"
    return (f"{size}, to which {node.op} {node.name} adds at each step: a counter",)
