"""Find experts that are computed one by one, each on its own tokens."""

from __future__ import annotations

from collections.abc import Sequence

from graphpass.ir.constants import fold_scalar
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import CASTS, KEEPS_ORDER, RESHAPES
from graphpass.ir.pattern import Match, MissError, Pattern, look_through, op, var
from graphpass.ir.values import fixed_size
from graphpass.passes.experts.expert_layers import (
    SPREAD,
    ExpertLayer,
    find_body,
    gathered_tokens,
    is_column,
    is_zero,
    plain_operator,
    same_form,
    with_native,
)

_ONE_HOT = op.OneHot(
    look_through(var("chosen") & op.TopK(..., port=1), CASTS), var("count"), 1, 0, name="one_hot"
).where(lambda graph, value: with_native(axis=2)(graph, value) and with_native(axis=-1)(graph, value))


def _places(order: tuple[int, ...], port: int) -> Pattern:
    """Match one expert's places along one axis of the permuted choices."""
    part = op.Gather(op.Transpose(_ONE_HOT, ..., order=order), var("number"), ..., axis=0)
    found = op.NonZero(part | op.Convert(part))
    turned = op.Transpose(found, ..., order=(1, 0))
    split = "Split|VariadicSplit"
    return op(split, found, ..., axis=0, port=port) | op(split, turned, ..., axis=1, port=port)


def _expert(order: tuple[int, ...]) -> Pattern:
    """Match the rows of one expert, weighted and added to their tokens.

    A token's weight for the expert is element ``slot + k * token`` of all weights.
    """
    axis = order[1:].index(0)
    token, slot = var("token") & _places(order, axis), _places(order, 1 - axis)
    place = op.Add(look_through(slot, KEEPS_ORDER), op.Multiply(look_through(token, KEEPS_ORDER), var("k")))
    weight = look_through(op.Gather(var("weights"), look_through(place, KEEPS_ORDER), ..., axis=0), KEEPS_ORDER)
    weighted = op.Multiply(var("result"), weight.where(is_column))
    updates = look_through(weighted, frozenset({"Broadcast", "Convert"}))
    return op.ScatterElementsUpdate(var("base"), look_through(token, SPREAD), updates, ..., axis=0)


#: The addition of one expert to the sum.
EXPERT = _expert((2, 1, 0)) | _expert((2, 0, 1))


def separate_layer(graph: Graph, experts: Sequence[Match]) -> ExpertLayer:
    """Return the layer of `EXPERT` matches of one OneHot; raise `MissError` on unlike ones."""
    first = experts[0]
    anchor, chosen = first.nodes["one_hot"], first["chosen"]
    tables = {graph.look_through(expert["weights"], RESHAPES) for expert in experts}
    numbers = [fold_scalar(graph, expert["number"]) for expert in experts]
    count = fold_scalar(graph, first["count"])
    ordered = sorted(zip(numbers, experts, strict=True), key=lambda one: one[0] or 0)
    if [number for number, _ in ordered] != list(range(int(count or 0))):
        raise MissError(anchor, f"experts {[number for number, _ in ordered]} of {count} are found")
    slots = fixed_size(chosen, 1)
    if len(tables) > 1 or any(fold_scalar(graph, expert["k"]) != slots for expert in experts):
        raise MissError(anchor, "its experts are weighted by other numbers than one for each choice")
    weights = tables.pop()
    if (weights.shape, weights.element_type) != (chosen.shape, first["result"].element_type):
        raise MissError(graph.producer(weights), "it gives no weight for each choice, of the type of the tokens")
    bodies, tokens = [], set()
    for _, expert in ordered:
        body, rows = find_body(graph, expert["result"], lambda value: plain_operator(graph, value))
        bodies.append(body)
        tokens.add(gathered_tokens(graph, rows, expert["token"]))
    if len(tokens) > 1 or not same_form(bodies):
        raise MissError(anchor, "its experts read different tokens, or compute different things")
    return ExpertLayer(anchor.name, tokens.pop(), chosen, weights, tuple(bodies), _total(graph, experts))


def _total(graph: Graph, experts: Sequence[Match]) -> Value:
    """Return the sum of all experts, which are added one by one to zeros."""
    sums: dict[Value | None, Value] = {}
    for expert in experts:
        base, after = expert["base"], expert.node
        if after.native.get_attributes()["reduction"] != "sum":
            added = [use.node for use in graph.uses(after.outputs[0])]
            if not is_zero(graph, base) or len(added) != 1 or added[0].op != "Add":
                raise MissError(after, "it neither adds to a sum nor is added to one")
            after = added[0]
            base = next((value for value in after.inputs if value and value != expert.node.outputs[0]), base)
        sums[None if is_zero(graph, base) else base] = after.outputs[0]
    last: Value | None = None
    for _ in experts:
        if last not in sums:
            raise MissError(experts[0].node, "the results of experts are not added up one by one, from 0")
        last = sums[last]
    assert last is not None
    return last
