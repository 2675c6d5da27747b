"""Find experts that are computed one by one, each on its own tokens."""

from __future__ import annotations

from collections.abc import Sequence

from graphpass.analysis.experts.layers import SPREAD, Layer, gathered_tokens, is_column, read_alike, require_weights
from graphpass.analysis.experts.products import read_expert
from graphpass.analysis.pattern import Match, Pattern, look_through, op, var
from graphpass.analysis.symbolic.folding import fold, fold_scalar, is_zero
from graphpass.ir.graph import Graph, Value
from graphpass.ir.miss import MissError, or_miss
from graphpass.ir.operators import CASTS, KEEPS_ORDER, RESHAPES
from graphpass.ir.values import fixed_size

_CHOSEN = look_through(var("chosen") & op.TopK(..., port=1), CASTS)

#: Lay the weights of all choices in a row.
FLATTENS = RESHAPES | {"Flatten"}

#: OpenVINO has the numbers 1 and 0 apart, ONNX in one input.
ONE_HOT = op.OneHot(_CHOSEN, var("count"), 1, 0, name="one_hot", axis=2) | op.OneHot(
    _CHOSEN,
    var("count"),
    var("levels").where(lambda graph, value: None if _is_off_on(graph, value) else f"{value.name} is not 0 and 1"),
    name="one_hot",
    axis=2,
)


def _is_off_on(graph: Graph, value: Value) -> bool:
    constant = fold(graph, value)
    return constant is not None and constant.tolist() == [0, 1]


def _places(order: tuple[int, ...], port: int) -> Pattern:
    """Match one expert's places along one axis of the permuted choices."""
    part = op.Gather(op.Transpose(ONE_HOT, ..., order=order), var("number"), ..., axis=0)
    pattern = op.NonZero(part | op.Convert(part))
    turned = op.Transpose(pattern, ..., order=(1, 0))
    split = "Split|VariadicSplit"
    return op(split, pattern, ..., axis=0, port=port) | op(split, turned, ..., axis=1, port=port)


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


def separate_experts(graph: Graph) -> dict[int, list[Match]]:
    """Return the matches of `EXPERT` by the index of their OneHot."""
    matches: dict[int, list[Match]] = {}
    for node in graph.of_op("ScatterElementsUpdate"):
        expert = EXPERT.match(graph, node)
        if isinstance(expert, Match):
            matches.setdefault(expert.nodes["one_hot"].index, []).append(expert)
    return matches


@or_miss
def separate_layer(graph: Graph, experts: Sequence[Match]) -> Layer:
    """Return the layer of `EXPERT` matches of one OneHot.

    Raises:
        MissError: Some are missing, weighted by other numbers, or of other forms.
    """
    first = experts[0]
    anchor, chosen = first.nodes["one_hot"], first["chosen"]
    tables = {graph.look_through(expert["weights"], FLATTENS) for expert in experts}
    places = (fold_scalar(graph, expert["number"]) for expert in experts)
    numbers = [-1 if number is None else int(number) for number in places]
    count = int(fold_scalar(graph, first["count"]) or 0)
    if sorted(numbers) != list(range(count)):
        raise MissError(anchor, f"experts {sorted(numbers)} of {count} are found")
    slots = fixed_size(chosen, 1)
    if len(tables) > 1 or any(fold_scalar(graph, expert["k"]) != slots for expert in experts):
        raise MissError(anchor, "its experts are weighted by other numbers than one for each choice")
    weights = tables.pop()
    require_weights(graph, weights, chosen, first["result"])
    ordered = [experts[numbers.index(number)] for number in range(count)]
    read = tuple(read_expert(graph, expert["result"]) for expert in ordered)
    rows = [gathered_tokens(graph, own.rows, match["token"]) for own, match in zip(read, ordered, strict=True)]
    tokens = read_alike(anchor, rows, read)
    return Layer(anchor.name, tokens, chosen, weights, read, count, _summed(graph, experts))


def _summed(graph: Graph, experts: Sequence[Match]) -> Value:
    """Return the sum of all experts; raise `MissError` unless each is added once."""
    sums: dict[Value | None, Value] = {}
    for expert in experts:
        base, after = expert["base"], expert.node
        if after.attributes.get("reduction") != "sum":
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
