"""Find token ids that a graph compares its tokens with, and the number of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.symbolic.folding import fold
from graphpass.ir.bodies import inlined
from graphpass.ir.inputs import EMBEDDINGS, token_input
from graphpass.ir.operators import ARITHMETIC, COMPARISONS, EXTREMA, LAYOUT, PICKS
from graphpass.ir.values import selected_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.graph import Use, Value
    from graphpass.ir.model import Model

_COMPARING = ARITHMETIC | EXTREMA | {*COMPARISONS, "Equal", "NotEqual"}

#: Maximum elements of a constant of token ids; larger ones are tables.
_MOST_IDS = 64


def embedded_ids(model: Model) -> int | None:
    """Return the number of rows of the smallest table indexed by token ids, if known."""
    graph = inlined(model).graph
    tokens = token_input(graph)
    if tokens is None or tokens.name == EMBEDDINGS:
        return None
    return min((rows for rows in selected_rows(graph, tokens) if rows is not None), default=None)


def compared_token_ids(model: Model) -> tuple[int, ...]:
    """Return integers that ``model`` compares token ids with, and their neighbours, ascending.

    Random prompts hardly ever contain an id that a graph handles specially, such as a placeholder of images.
    """
    graph = inlined(model).graph
    tokens = token_input(graph)
    if tokens is None or tokens.name == EMBEDDINGS:
        return ()

    def through(use: Use) -> Iterable[Value]:
        return use.node.outputs if use.node.op in LAYOUT | PICKS | ARITHMETIC | EXTREMA and use.port == 0 else ()

    ids: set[int] = set()
    for use in graph.forward([tokens], through):
        others = use.node.inputs if use.node.op in _COMPARING else ()
        for value in others[: use.port] + others[use.port + 1 :]:
            numbers = fold(graph, value)
            if numbers is not None and numbers.size <= _MOST_IDS and numbers.dtype.kind in "iuf":
                whole = {int(number) for number in numbers.ravel().tolist() if abs(number) < 2**31}
                ids |= {number + step for number in whole for step in (-1, 0, 1)}
    return tuple(sorted(number for number in ids if number >= 0))
