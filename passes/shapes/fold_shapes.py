"""Fold what shapes are computed from, so that none depends on an input."""

from __future__ import annotations

import numpy

from graphpass.ir.constants import fold
from graphpass.ir.model import Model

#: Types of folded values. Other numbers are left to the runtime, which rounds in its own way.
_FOLDED = frozenset({"boolean", "i32", "i64"})


def fold_shapes(model: Model) -> None:
    """Fold whole numbers of constants and known sizes; infer sizes that follow."""
    changed = True
    while changed:
        graph, rewriter = model.graph, model.rewriter()
        known = {
            value: held
            for node in graph.nodes
            for value in (node.outputs if node.op != "Constant" else ())
            if value.element_type in _FOLDED and (held := fold(graph, value)) is not None
        }
        for value, held in known.items():
            if any(not use.node.outputs or not set(use.node.outputs) <= known.keys() for use in graph.uses(value)):
                rewriter.replace(value, rewriter.constant(numpy.array(held), "", f"{value.name}/folded"))
        changed = rewriter.finish()
