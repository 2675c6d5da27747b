"""Lookups of booleans, for which OpenVINO's GPU plugin has no kernel, so that it refuses the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.targets.finding import Finding

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["boolean_gathers", "refused_gathers"]

_KERNEL = "src/plugins/intel_gpu/src/graph/impls/ocl/gather_nd.cpp"


def refused_gathers(model: Model) -> tuple[Finding, ...]:
    """A finding for each GatherND of booleans in ``model``, an OpenVINO IR."""
    reason = "it looks booleans up, for which the plugin has no kernel: run lower-boolean-gathers"
    return tuple(
        Finding("model", str(model.path), "refused", node=node.name, reason=reason, source=_KERNEL)
        for node in boolean_gathers(model.graph)
    )


def boolean_gathers(graph: Graph) -> list[Node]:
    """Each GatherND whose elements are booleans."""
    return [node for node in graph.of_op("GatherND") if node.outputs[0].element_type == "boolean"]
