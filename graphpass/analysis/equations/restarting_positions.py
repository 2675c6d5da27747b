"""Find positions that count from the first token of each step."""

from __future__ import annotations

from graphpass.analysis.attention.mask import BATCH, LENGTH
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.equations.rotation import QUERY, ROW, restarts
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ZERO
from graphpass.ir.graph import Node, Value
from graphpass.ir.model import Model


def find_restart(model: Model) -> Node | None:
    """Return the first cosine of such positions in a model with growing caches, for `Model.analysis`.

    A step after a past is rotated as the first one then, as in exports of Bamba by transformers 5.
    """
    if not analyze_caches(model).of_kind("kv"):
        return None
    elements = model.analysis(find_elements)
    cosines = model.graph.of_op("Cos")
    return next((node for node in cosines if _restarts(elements, node.outputs[0])), None)


def _restarts(elements: Elements, value: Value) -> bool:
    own = {BATCH: ROW, LENGTH: QUERY}
    try:
        sizes = elements.shape(value)
        places = tuple(
            ZERO if size is ex.ONE else own.get(size, ex.index(f"channel {axis}", size))
            for axis, size in enumerate(sizes)
        )
        return QUERY in places and restarts(elements.of(value, places))
    except UnknownError:
        return False
