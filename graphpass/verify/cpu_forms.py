"""Replace operators that the CPU provider does not implement, for comparisons on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphpass.analysis.attention.operators import operator_heads
from graphpass.analysis.equations.head_sizes import why_sizes_refused
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import format_passes, parse
from graphpass.ir.operators import normalizes_heads

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model


def passes_for_cpu(model: Model) -> tuple[Pass[Any], ...]:
    """Return passes that replace PagedAttention, and GroupQueryAttention with norms or sizes without a kernel.

    ONNX Runtime's CPU provider implements neither (1.32), and other providers have the same limits of sizes.

    Args:
        model: Any model; it is not modified.
    """
    graph = model.graph
    steps = ["unpage-caches"] if any(True for _ in graph.of_op("PagedAttention")) else []
    normed = any(map(normalizes_heads, graph.of_op("GroupQueryAttention", "PagedAttention")))
    if normed or any(map(_has_no_kernel, graph.of_op("GroupQueryAttention"))):
        steps.append("lower-operators{only=[group-query-attention]}")
    return parse(",".join(steps))


def _has_no_kernel(node: Node) -> bool:
    return why_sizes_refused(node, operator_heads(node).head_dim) is not None


def in_cpu_form(model: Model) -> Model:
    """Return ``model`` after `passes_for_cpu`.

    Args:
        model: Any model; it is not modified, and returned if no pass is required.

    Raises:
        UnsupportedError: GP340 or GP341, an operator cannot be replaced.
    """
    passes = passes_for_cpu(model)
    return PassManager(passes).run(model).model if passes else model


def note_on_form(model: Model) -> tuple[str, ...]:
    """Return a sentence for the report if the reference ran after `passes_for_cpu`.

    Args:
        model: The reference as it was read.
    """
    passes = passes_for_cpu(model)
    if not passes:
        return ()
    return (f"operators of the reference without a kernel on the CPU: it ran after {format_passes(passes)}",)
