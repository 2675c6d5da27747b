"""Find logits of each row's last token."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.folding import fold, fold_cuts
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.cuts import NO_END
from graphpass.ir.graph import Graph, Node
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.operators import POSITIONWISE, PRODUCTS
from graphpass.ir.values import REALS, fixed_size, is_activation

_LOGITS = "logits"

#: Axis of positions of hidden states and logits.
_POSITIONS = 1


def logits_of_rows(model: Model) -> Node | None:
    """Return the Result of logits ``[batch, vocabulary]``, for `Model.analysis`.

    Returns:
        The Result; ``None`` for logits of other axes, and for models without caches, whose logits may be scores.
    """
    result, tokens = model.graph.writes.get(_LOGITS), token_input(model.graph)
    # Models with PagedAttention read the tokens of all rows in one vector.
    if result is None or tokens is None or tokens.rank == 1 or not analyze_caches(model).caches:
        return None
    value, sizes = result.source(), model.analysis(infer_sizes)
    rows, batch = sizes.shape(value), sizes.shape(tokens)
    if value.rank != 2 or fixed_size(value, 1) is None or value.element_type not in REALS or not rows or not batch:
        return None
    return result if rows[0] == batch[0] else None


@dataclass(frozen=True, slots=True)
class LastToken:
    """The selection of each row's last token before the logits.

    Attributes:
        selector: The Slice or Gather along the axis of positions.
        reshapes: Squeezes and Unsqueezes of this axis between the selection and the logits, the last first.
    """

    selector: Node
    reshapes: tuple[Node, ...]


def find_last_token(model: Model) -> LastToken | None:
    """Return the selection of the last position upstream of the logits, for `Model.analysis`.

    Only operators that compute each position separately may be between the selection and the logits.

    Returns:
        The selection; ``None`` for models that compute logits of all tokens, or select the last one otherwise.
    """
    graph, result = model.graph, model.graph.writes.get(_LOGITS)
    if result is None:
        return None
    value, reshapes = result.source(), list[Node]()
    while True:
        node = graph.producer(value)
        if _selects_last(graph, node):
            return LastToken(node, tuple(reshapes))
        if node.op in {"Squeeze", "Unsqueeze"} and node.attributes.get("axes") == (_POSITIONS,):
            reshapes.append(node)
            value = node.source()
            continue
        is_product = node.op in PRODUCTS and not is_activation(graph, node.input(1))
        active = [each for each in node.sources if is_activation(graph, each)]
        if len(active) != 1 or not (is_product or node.op in POSITIONWISE):
            return None
        value = active[0]


def gives_one_token(model: Model) -> bool:
    """Return whether ``model`` declares logits of one token, ``[batch, 1, vocabulary]``, for several input tokens."""
    tokens = token_input(model.graph)
    read = () if tokens is None else tokens.shape or ()
    logits = next((port.shape or () for port in model.outputs if port.name == _LOGITS), ())
    return len(read) >= 2 and read[1] != 1 and len(logits) == 3 and logits[1] == 1


def selects_undeclared(model: Model) -> bool:
    """Return whether the model selects the last position, but declares any number of logits."""
    result = model.graph.writes.get(_LOGITS)
    is_open = result is not None and result.source().rank == 3 and fixed_size(result.source(), _POSITIONS) is None
    return is_open and model.analysis(find_last_token) is not None


def _selects_last(graph: Graph, node: Node) -> bool:
    if node.op == "Gather" and node.attributes.get("axis") == _POSITIONS:
        place = fold(graph, node.source(1))
        return place is not None and place.size == 1 and int(place.reshape(-1)[0]) == -1
    cuts = fold_cuts(graph, node)
    if len(cuts) != 1 or cuts[0].stop is None or cuts[0].stop < NO_END:
        return False
    return (cuts[0].axis, cuts[0].start, cuts[0].step) == (_POSITIONS, -1, 1)
