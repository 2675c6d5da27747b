"""The pass `simplify-shapes`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic.equal_sizes import Vector
from graphpass.analysis.symbolic.expressions import ONE
from graphpass.analysis.symbolic.folding import fold, fold_cuts
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node, Use, Value
from graphpass.ir.operators import RESHAPES, SLICES
from graphpass.passes.shapes.rewiring import Rewiring, downstream_of
from graphpass.passes.shapes.size_reads import fix_sizes, read_inputs, read_tokens, share_reads


@dataclass(frozen=True)
class SimplifyShapes(Pass[OpenVINOModel]):
    """Share computations of dimensions, and drop slices, broadcasts and reshapes without effect.

    Exporters trace ``x.shape`` at every use: each layer reads the lengths of its own key, mask and query, and slices
    the mask to the length of the key, which it already has. A runtime cannot derive that all caches have equal
    lengths. Two dimensions are equal if they are in every inference that succeeds (`find_lengths`).

    - Each length is computed once, from inputs and the length of the first cache if possible. Integers that do not
      depend on a dimension are unchanged: runtimes fold them, and match some operators by them.
    - Operators whose result equals their input are dropped, and operators that invert preceding Reshapes or Transposes.
      Producers of model outputs are kept, and so is the end of a mask in the form from which paged attention reads a
      sliding window (see `expose-window`).
    - The batch size is read from the tokens, not from the mask.
    - A Broadcast is dropped if its user broadcasts to the same shape, such as the product of rotary frequencies and
      positions.
    - A Tile of axes of size 1 becomes a Broadcast. OpenVINO's frontend writes such a Tile for heads of ONNX's
      Attention, and plugins (2026.4.1) do not fuse a Tile with the cache. The CPU plugin also computes a Tile of masks
      for each head incorrectly: the result has another order in memory than its user reads.
    - Fixed sizes of keys and values are constants where other operators read them.
    - A dimension of a past is read by a Gather, not by a Slice: paged attention replaces only Gathers of the past's
      length.

    Options:
        identities: Whether to drop operators whose result equals their input.

    Shapes:
        integer tensors of at most 16 elements are shared. Dropped operators have the shape and type of their input, or
        another operand has the dimensions to which they broadcast. Before a MatMul, only axes before the last two are
        considered, and no MatMul with weights: the CPU plugin (2026.4.1) replaces it by a FullyConnected, which does
        not broadcast.

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
        counts = {"tiles broadcast": _broadcast_tiles(model), "sizes gathered": _gather_sizes(model)}
        counts["sizes fixed"] = fix_sizes(model)
        sizes, edits, rewriter = find_lengths(model), Rewiring(model.graph), model.rewriter()
        counts["reads shared"] = share_reads(model.graph, sizes, edits)
        if self.identities:
            counts |= drop_identities(sizes, edits)
        counts["broadcasts dropped"] = drop_broadcasts(sizes, edits)
        for node, port, value in edits.changed():
            rewriter.redirect(node, port, value)
        rewriter.finish()
        counts["reads of keys redirected"] = read_inputs(model)
        counts["reads of the mask redirected"] = read_tokens(model)
        return Done({name: count for name, count in counts.items() if count})


#: Operators that are identities if they do not change the shape.
_KEEPS_ORDER = frozenset({"Broadcast", "Reshape", "Squeeze", "Unsqueeze"})

#: Operators that broadcast their operands by NumPy's rules.
_ELEMENTWISE = frozenset(
    {
        *("Add", "Divide", "Maximum", "Minimum", "Multiply", "Power", "Select", "Subtract"),
        *("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LogicalAnd", "LogicalOr", "LogicalXor"),
    }
)


def _broadcast_tiles(model: OpenVINOModel) -> int:
    """Replace Tiles of axes of size 1 by Broadcasts.

    Returns:
        The number of replaced Tiles.
    """
    rewriter, count = model.rewriter(), 0
    for node in model.graph.of_op("Tile"):
        repeats, shape = fold(model.graph, node.inputs[1]), node.source().shape
        if repeats is None or shape is None or repeats.size != len(shape):
            continue
        if any(times != 1 and size != 1 for times, size in zip(repeats.reshape(-1), shape, strict=True)):
            continue
        write = rewriter.under(node.name)
        rewriter.replace(node.outputs[0], write.op("Broadcast", *node.inputs, mode="bidirectional", label="broadcast"))
        count += 1
    rewriter.finish()
    return count


def drop_identities(sizes: Sizes, edits: Rewiring) -> dict[str, int]:
    """Bypass operators whose result equals their input.

    Args:
        sizes: Proven sizes of all tensors, and contents of shapes.
        edits: The edges of the graph, which are changed.

    Returns:
        The number of bypassed operators by statistic: ``Reshape dropped``.
    """
    kept, dropped = _mask_ends(edits), Counter[str]()
    for node in edits.living():
        if (
            node.index not in kept
            and len(node.outputs) == 1
            and (same := _equal_source(node, sizes, edits)) is not None
        ):
            dropped[node.op] += edits.redirect(node.outputs[0], same) > 0
    return {f"{op} dropped": count for op, count in sorted(dropped.items())}


def drop_broadcasts(sizes: Sizes, edits: Rewiring) -> int:
    """Bypass Broadcasts for users that broadcast to the same shape.

    Args:
        sizes: Proven sizes of all tensors, and contents of shapes.
        edits: The edges of the graph, which are changed.

    Returns:
        The number of redirected uses.
    """
    kept, dropped = _mask_ends(edits), 0
    fed = downstream_of(
        edits.graph, {node.index for node in edits.graph.nodes if node.op in {"Parameter", "ReadValue"}}
    )
    living = edits.living()
    alive = {node.index for node in living}
    for node in living:
        if node.op != "Broadcast" or node.index in kept:
            continue
        for use in sorted(edits.uses(node.outputs[0]), key=lambda use: (use.node.name, use.port)):
            if use.node.index in alive and _is_needless(node, use, sizes, edits, fed):
                edits.move(use, edits.source(node))
                dropped += 1
    return dropped


def _mask_ends(edits: Rewiring) -> set[int]:
    """Return the last Broadcast and Slice of masks in the form of `expose-window` or optimum.

    The matchers in OpenVINO's state_management_pattern.cpp require Broadcast -> Select -> Slice -> attention.
    """
    ends: set[int] = set()
    nodes = edits.graph.nodes
    for node in edits.graph.of_op("ScaledDotProductAttention"):
        mask = nodes[edits.source(node, 3).node] if len(node.inputs) > 3 else node
        select = nodes[edits.source(mask).node] if mask.op == "Slice" else node
        if select.op == "Select":
            ends |= {mask.index, *(edits.source(select, port).node for port in range(len(select.inputs)))}
    return ends


def _equal_source(node: Node, sizes: Sizes, edits: Rewiring) -> Value | None:
    """Return the value upstream that equals the result of a node, if any."""
    if _equals_its_input(node, sizes, edits):
        return edits.source(node)
    if node.op == "Transpose":
        return _before_transposes(node, sizes, edits)
    return _before_reshapes(node, sizes, edits) if node.op in RESHAPES else None


def _before_transposes(node: Node, sizes: Sizes, edits: Rewiring) -> Value | None:
    order = _order(node, sizes)
    value, composed = edits.source(node), order
    while order and (node := edits.graph.nodes[value.node]).op == "Transpose":
        before = _order(node, sizes)
        if len(before) != len(order):
            return None
        composed, value = [before[axis] for axis in composed], edits.source(node)
        if composed == sorted(composed):
            return value
    return None


def _order(transpose: Node, sizes: Sizes) -> list[int]:
    """Return the order of a Transpose; empty if unknown."""
    numbers = [axis.as_number for axis in sizes.content(transpose.inputs[1]) or ()]
    return [int(number) for number in numbers if number is not None] if None not in numbers else []


def _before_reshapes(node: Node, sizes: Sizes, edits: Rewiring) -> Value | None:
    shape, value, result = sizes.shape(node.outputs[0]), edits.source(node), node.outputs[0]
    while shape is not None and (node := edits.graph.nodes[value.node]).op in RESHAPES:
        value = edits.source(node)
        if shape == sizes.shape(value) and not _is_more_static(value, result):
            return value
    return None


def _equals_its_input(node: Node, sizes: Sizes, edits: Rewiring) -> bool:
    if node.op == "Concat":
        return len(node.inputs) == 1
    if node.op == "Convert":
        return edits.source(node).element_type == node.outputs[0].element_type
    if node.op == "Transpose":
        order = sizes.content(node.inputs[1])
        return bool(order) and [axis.as_number for axis in order or ()] == list(range(len(order or ())))
    if node.op not in _KEEPS_ORDER | SLICES:
        return False
    shape = sizes.shape(node.outputs[0])
    if shape is None or shape != sizes.shape(edits.source(node)):
        return False
    if node.op in _KEEPS_ORDER:
        return not _is_more_static(edits.source(node), node.outputs[0])
    steps = sizes.content(node.inputs[3]) if len(node.inputs) > 3 else None
    return steps is not None and all(step is ONE for step in steps)


def _is_more_static(source: Value, result: Value) -> bool:
    """Return whether ``result`` has a static dimension that is dynamic in ``source``."""
    pairs = zip(source.shape or (), result.shape or (), strict=True)
    return any(isinstance(new, int) and not isinstance(old, int) for old, new in pairs)


def _is_needless(broadcast: Node, use: Use, sizes: Sizes, edits: Rewiring, fed: set[int]) -> bool:
    node = use.node
    others = [edits.source(node, port) for port in range(len(node.inputs)) if port != use.port]
    shapes = [shape for other in others if (shape := sizes.shape(other)) is not None]
    before, after = sizes.shape(edits.source(broadcast)), sizes.shape(broadcast.outputs[0])
    if before is None or after is None or len(shapes) < len(others):
        return False
    if node.op == "MatMul":
        if before[-2:] != after[-2:] or len(before) < 2 or others[0].node not in fed:
            return False
        return _broadcasts_to(after[:-2], before[:-2], [shape[:-2] for shape in shapes])
    is_numpy = node.op in _ELEMENTWISE and node.native.get_attributes().get("auto_broadcast") == "numpy"
    return is_numpy and _broadcasts_to(after, before, shapes)


def _broadcasts_to(after: Vector, before: Vector, others: list[Vector]) -> bool:
    """Return whether ``before`` and ``others`` broadcast to ``after``."""
    if max(map(len, (before, *others))) < len(after):
        return False
    for axis in range(1, len(after) + 1):
        old = before[-axis] if axis <= len(before) else ONE
        is_expanded = any(axis <= len(other) and other[-axis] == after[-axis] for other in others)
        if old is not after[-axis] and not (old is ONE and is_expanded):
            return False
    return True


def _gather_sizes(model: OpenVINOModel) -> int:
    """Replace Slices of one dimension of a past by Gathers.

    OpenVINO's paged attention replaces Gathers of the past's length by the length of its own cache
    (prev_sequence_length_pattern.cpp). With other operators, the variable and ``beam_idx`` are not removed.

    Returns:
        The number of replaced Slices.
    """
    graph, rewriter, count = model.graph, model.rewriter(), 0
    pasts = [graph.reads[cache.read].outputs[0] for cache in analyze_caches(model).of_kind("kv")]
    reads = graph.forward(pasts, lambda use: use.node.outputs if use.node.op in {"Gather", "ShapeOf"} else ())
    for node in [
        use.node for use in reads if use.node.op in SLICES and graph.producer(use.node.source()).op == "ShapeOf"
    ]:
        cuts = fold_cuts(graph, node)
        if len(cuts) == 1 and cuts[0].step == 1 and node.outputs[0].shape == (1,):
            made = rewriter.under(node.name).op("Gather", node.source(), [cuts[0].start], axis=0)
            rewriter.replace(node.outputs[0], made)
            count += 1
    rewriter.finish()
    return count
