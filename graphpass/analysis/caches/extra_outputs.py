"""Find outputs that generation does not read."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import constant_outputs
from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.ir.values import REALS

_LOGITS = "logits"

#: Rank of logits, and of states of tokens.
_RANK = 3


def extra_outputs(model: Model) -> tuple[str, ...]:
    """Return outputs of a decoder beside logits, caches and states of tokens, for `Model.analysis`.

    They are chosen token ids, and scores or weights of attention, which otherwise is not fused. Outputs that depend on
    no input may be tables that a program reads.
    """
    written = {cache.write for cache in analyze_caches(model).caches}
    if not written or _LOGITS not in model.graph.writes:
        return ()
    others = [node for node in model.graph.of_op("Result") if node.name not in written and node.name != _LOGITS]
    extra = [node.name for node in others if not _is_of_tokens(node)]
    constant = constant_outputs(model.graph) if extra else ()
    return tuple(name for name in extra if name not in constant)


def _is_of_tokens(result: Node) -> bool:
    value = result.source()
    return value.rank in {_RANK, None} and value.element_type in REALS
