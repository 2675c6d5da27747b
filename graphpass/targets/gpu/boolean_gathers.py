"""Lookups of booleans, for which OpenVINO's GPU plugin has no kernel, so that it refuses the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.engine.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["boolean_gathers", "refused_gathers"]

_KERNEL = "src/plugins/intel_gpu/src/graph/impls/ocl/gather_nd.cpp"


def refused_gathers(model: Model) -> Iterator[Finding]:
    """Yield a finding for each GatherND of booleans in ``model``, an OpenVINO IR."""
    reason = "it looks booleans up, for which the plugin has no kernel: run lower-boolean-gathers"
    for node in boolean_gathers(model.graph):
        yield Finding("model", str(model.path), "refused", node=node.name, reason=reason, source=_KERNEL)


def boolean_gathers(graph: Graph) -> list[Node]:
    """Return each GatherND of booleans."""
    return [node for node in graph.of_op("GatherND") if node.outputs[0].element_type == "boolean"]
