"""Replace operators that the CPU provider does not implement, for comparisons on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphpass.analysis.attention.operators import operator_heads
from graphpass.analysis.equations.head_sizes import why_sizes_refused
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import format_passes, parse
from graphpass.ir.inputs import is_merged
from graphpass.ir.operators import normalizes_heads
from graphpass.ir.quantizers import rounds_activations

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model


def passes_for_cpu(model: Model) -> tuple[Pass[Any], ...]:
    """Return passes for PagedAttention, GroupQueryAttention without a kernel, and quantized branches.

    ONNX Runtime's CPU provider implements neither (1.32), and other providers have the same limits of sizes. Quantized
    decoders of both steps in one file are replaced by that of later steps, which also computes the first: inside an
    If, products of u8 and s8 saturate on processors without VNNI (``session.x64quantprecision`` has no effect there).

    Args:
        model: Any model; it is not modified.
    """
    graph = model.graph
    steps = ["select-branch"] if is_merged(graph) and rounds_activations(model) else []
    steps += ["unpage-caches"] if any(True for _ in graph.of_op("PagedAttention")) else []
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
    form = format_passes(passes)
    if form == "select-branch":
        return (f"the branch of the first step, which rounds differently on the CPU: the reference ran after {form}",)
    return (f"operators of the reference without a kernel on the CPU: it ran after {form}",)
