"""The pass `lower-boolean-gathers`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node
from graphpass.ir.model import Model


@dataclass(frozen=True)
class LowerBooleanGathers(Pass[Model]):
    """Replace GatherND of booleans by Unsqueeze, or by GatherND of integers.

    transformers indexes ``attention_mask`` by batch and position, which torch.onnx exports as a GatherND of booleans.
    OpenVINO's GPU plugins have no kernel for it (``impls/ocl/gather_nd.cpp`` of openvino; observed with 2026.4.1).
    Qualcomm's HTP has none either, and fails with error 1002 for indices of five axes (observed with onnxruntime-qnn
    2.7.0).

    Shapes:
        any.

    Before:
        GatherND(booleans [batch, n], all indices [batch, 1, 1, n, 2])
    After:
        Unsqueeze(booleans, [1, 2])

    Before:
        GatherND(booleans, other indices)
    After:
        Convert(GatherND(Convert(booleans, i32), indices), boolean)
    """

    name = "lower-boolean-gathers"

    def run(self, model: Model) -> Done:
        rewriter, elements = model.rewriter(), model.analysis(find_elements)
        gathers = [node for node in rewriter.graph.of_op("GatherND") if node.outputs[0].element_type == "boolean"]
        for node in gathers:
            write = rewriter.under(node.name)
            axes = _added_axes(elements, node)
            if axes is not None:
                same = write.op("Unsqueeze", node.source(), axes=axes) if axes else rewriter.native(node.source())
                rewriter.replace(node.outputs[0], same)
                continue
            numbers = write.op("Convert", node.source(), to="i32", label="numbers")
            looked_up = rewriter.clone(node, {0: numbers}, f"{node.name}/looked_up")
            rewriter.replace(node.outputs[0], write.op("Convert", looked_up, to="boolean"))
        rewriter.finish()
        return Done({"GatherND lowered": len(gathers)})


def _added_axes(elements: Elements, node: Node) -> list[int] | None:
    """Return the axes that a GatherND of all elements in order adds; ``None`` for others."""
    source, result = node.source(), node.outputs[0]
    try:
        before, after = elements.shape(source), elements.shape(result)
        added = [axis for axis, size in enumerate(after) if size is ex.ONE]
        kept = [axis for axis in range(len(after)) if axis not in added]
        if tuple(after[axis] for axis in kept) != before:
            return None
        index = tuple(ex.ZERO if axis in added else ex.index(f"x{axis}", size) for axis, size in enumerate(after))
        is_same = elements.of(result, index) is elements.of(source, tuple(index[axis] for axis in kept))
    except UnknownError:
        return None
    return added if is_same else None
