"""The pass `simplify-shapes`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.shapes.sizes import Sizes
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.passes.shapes.needless import drop_broadcasts, drop_identities
from graphpass.passes.shapes.rewiring import Rewiring

__all__ = ["SimplifyShapes"]

#: Operators between a cache and the attention that reads it.
_TOWARDS_ATTENTION = frozenset({"Broadcast", "Concat", "Convert", "Reshape", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class SimplifyShapes(Pass[OpenVINOModel]):
    """Read each dimension in one place, and drop slices, broadcasts and reshapes that change nothing.

    Exporters trace ``x.shape`` at every use, so that each layer asks its own key, mask and query for their lengths, and
    write operators for sizes that might differ in general: the mask is cut to the length of the key, which it has
    already. A runtime cannot know that all caches are equally long. Two dimensions are equal if they are in every
    inference that succeeds (`find_lengths`).

    - Each length is computed once, at its cheapest: of the inputs, and of the first cache's length. Integers that
      depend on no dimension stay: runtimes fold them, and recognise some operators by them.
    - Operators that give their input are dropped. What an output of the model is named after stays, and so does the end
      of a mask in the form from which paged attention reads a sliding window (see `expose-window`).
    - A Broadcast is dropped whose user broadcasts to the same shape by itself, as the product of rotary frequencies
      with positions does.

    Options:
        identities: Whether operators that give their input are dropped.

    Shapes:
        integer tensors of at most 16 elements are shared; dropped operators have shape and type of their inputs, or the
        size of another operand along the axes that it copies. Before a MatMul only axes before the last two, and not
        beside weights: the CPU plugin (2026.4.1) makes a FullyConnected of that, which broadcasts nothing.

    Before:
        layer 0: ShapeOf(key) -> Gather(2) -> Slice(mask); layer 1: ShapeOf(key) -> Gather(2) -> Slice(mask)
        frequencies [1, n, 1] -> Broadcast [batch, n, 1] -> MatMul with positions [batch, 1, length]
    After:
        Add(past length, length) -> Slice(mask), Slice(mask)
        frequencies [1, n, 1] -> MatMul with positions [batch, 1, length]
    """

    name = "simplify-shapes"
    dialect = "openvino"

    identities: bool = True

    def run(self, model: OpenVINOModel) -> Done:
        """See `Pass.run`."""
        sizes, edits, rewriter = find_lengths(model), Rewiring(model.graph), model.rewriter()
        counts = {"reads shared": _share(model.graph, sizes, edits)}
        if self.identities:
            counts |= drop_identities(sizes, edits)
        counts["broadcasts dropped"] = drop_broadcasts(sizes, edits)
        for node, port, value in edits.changed():
            rewriter.redirect(node, port, value)
        rewriter.finish()
        return Done({words: count for words, count in counts.items() if count})


def _share(graph: Graph, sizes: Sizes, edits: Rewiring) -> int:
    """Read equal integers from the first node that computes them; return the number of changed reads."""
    late = _of_attention_operands(graph, sizes)
    first: dict[object, Value] = {}
    held: list[tuple[object, Value]] = []
    for node in graph.nodes:
        for value in node.outputs:
            content = sizes.content(value)
            if content is None or all(size.as_int is not None for size in content):
                continue
            key = (content, value.shape, value.element_type)
            held.append((key, value))
            deeper = key not in first or graph.depths[node.index] < graph.depths[first[key].node]
            if node.index not in late and deeper:
                first[key] = value
    return sum(edits.redirect(value, first[key]) for key, value in held if first.get(key, value) != value)


def _of_attention_operands(graph: Graph, sizes: Sizes) -> set[int]:
    """Return the nodes that compute sizes of a key or value, which no others may read.

    The CPU plugin makes the grown cache an output of attention: a mask or query of its size would wait for itself.
    """
    read = [node.inputs[port] for node in graph.of_op("ScaledDotProductAttention") for port in (1, 2)]
    leading = graph.backward(read, lambda node: node.inputs[:1] if node.op in _TOWARDS_ATTENTION else ())
    operands = {node.index for node in leading if node.op in _TOWARDS_ATTENTION}
    late: set[int] = set()
    for node in graph.nodes:
        reads = operands if node.op == "ShapeOf" else late
        follows = any(value is not None and value.node in reads for value in node.inputs)
        if follows and any(sizes.content(value) is not None for value in node.outputs):
            late.add(node.index)
    return late
