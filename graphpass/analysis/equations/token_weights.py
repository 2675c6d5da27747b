"""Find the columns of ``attention_mask`` that multiply hidden states of new tokens.

Layers without attention exclude padding by a product of hidden states and the mask. The correct factors are the mask's
last columns, those of the new tokens. An exporter that traced a prompt may select the first columns, which differ from
the last ones after a past.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.analysis.caches.step_tokens import find_step_tokens
from graphpass.analysis.equations.rotation import QUERY, ROW, query_place
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST
from graphpass.ir.graph import Graph, Use, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import ELEMENTWISE, LAYOUT, PICKS
from graphpass.ir.values import fixed_size

#: Operators between a mask and weights of hidden states, but not between a mask and scores of attention.
_MAKES_WEIGHTS = ELEMENTWISE | LAYOUT | PICKS

#: Operators that mask hidden states, with the port of the weight.
_PRODUCTS = {("Multiply", 0), ("Multiply", 1), ("Select", 0)}


#: A number of new tokens of at least 2.
_SEVERAL = ex.length("several", 2)


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """The columns of a mask ``[batch, past + length]`` that multiply ``length`` new tokens.

    Attributes:
        first: Whether some layer reads the first columns.
        none: Whether some layer multiplies new tokens by 1.
        unknown: Whether the columns of some layer are unknown.
    """

    first: bool = False
    none: bool = False
    unknown: bool = False

    def are_right(self, mask: Array, length: int) -> bool:
        """Return whether the last ``length`` tokens of ``mask`` get the weights of a recomputation.

        Args:
            mask: Mask of 0 and 1, ``[batch, past + length]``.
            length: Number of new tokens.
        """
        own = mask[:, -length:]
        return not (
            (self.unknown and not mask.all())
            or (self.none and not own.all())
            or (self.first and (mask[:, :length] != own).any())
        )


@dataclass(frozen=True, slots=True)
class Weighing:
    """Weights of new tokens after a past.

    Attributes:
        several: Columns of the mask that a step of several tokens reads.
        single: Columns of the mask that a step of one token reads.
        of_others: Weights that read the first columns in steps of several tokens, each ``[batch, length, 1]`` or
            ``[batch, 1, length]``.
    """

    several: TokenWeights = TokenWeights()
    single: TokenWeights = TokenWeights()
    of_others: tuple[Value, ...] = ()


def find_weighing(model: Model) -> Weighing:
    """Return the weights of new tokens in ``model``, for `Model.analysis`."""
    graph, inventory = model.graph, analyze_caches(model)
    mask = graph.parameters.get(MASK)
    # A mask of only the new tokens has no other columns.
    if mask is None or inventory.kind != "hybrid" or find_step_tokens(model, inventory).masks_new_tokens:
        return Weighing()
    elements = model.analysis(find_elements)
    alike: dict[Expr | Value, list[Value]] = {}
    for value in dict.fromkeys(_weights(graph, mask)):
        alike.setdefault(_weight(elements, value) or value, []).append(value)
    several = {weight: _columns(elements, mask, weight, _SEVERAL) for weight in alike}
    weighed = [_columns(elements, mask, weight, ONE) for weight in alike]
    of_others = [value for weight, values in alike.items() if several[weight].first for value in values]
    return Weighing(_all(several.values()), _all(weighed), tuple(of_others))


def _all(weights: Iterable[TokenWeights]) -> TokenWeights:
    collected = list(weights)
    return TokenWeights(
        any(each.first for each in collected),
        any(each.none for each in collected),
        any(each.unknown for each in collected),
    )


def _weights(graph: Graph, mask: Value) -> Iterator[Value]:
    """Yield factors of hidden states, ``[batch, length, 1]`` or, with channels first, ``[batch, 1, length]``."""

    def through(use: Use) -> tuple[Value, ...]:
        leads_on = use.node.op in _MAKES_WEIGHTS and not _weighs_hidden_states(use)
        return tuple(value for value in use.node.outputs if leads_on and (value.rank or 0) <= 3)

    for use in graph.forward([mask], through):
        if _weighs_hidden_states(use):
            yield use.node.source(use.port)


def _weighs_hidden_states(use: Use) -> bool:
    node, value = use.node, use.node.source(use.port)
    if (node.op, use.port) not in _PRODUCTS or value.rank != 3:
        return False
    hidden = node.source(1 if use.port == 0 else 0)
    return hidden.rank == 3 and any(
        fixed_size(value, axis) == 1 and (fixed_size(hidden, axis) or 1) > 1 for axis in (1, 2)
    )


def _weight(elements: Elements, weights: Value) -> Expr | None:
    """Return the weight of the token at `ROW`, `QUERY`."""
    try:
        sizes = elements.shape(weights)
    except UnknownError:
        return None
    if [size for size in sizes if size is not ONE] not in ([BATCH, LENGTH], [LENGTH]):
        return None
    return elements.of(weights, query_place(sizes))


def _columns(elements: Elements, mask: Value, weight: Expr | Value, length: Expr) -> TokenWeights:
    """Return the columns that a weight of ``length`` new tokens reads."""
    if isinstance(weight, Value) or any(part in elements.misses for part in ex.walk(weight)):
        return TokenWeights(unknown=True)
    places = {LENGTH: length} | ({QUERY: ZERO} if length is ONE else {})
    own, first = (ex.substitute(elements.of(mask, (ROW, place)), places) for place in (ex.add(PAST, QUERY), QUERY))
    column = ex.substitute(ex.choose(weight, ONE, ZERO) if weight.sort == "bool" else weight, places)
    if column is own:
        return TokenWeights()
    return TokenWeights(column is first, column is ONE, unknown=column not in (first, ONE))
