"""Choose the tensors from which a graph reads sizes; see the pass `simplify-shapes`."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.graph import Graph, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder
from graphpass.passes.shapes.rewiring import Rewiring, downstream_of

#: Operators between a cache and the attention that reads it.
_TOWARDS_ATTENTION = frozenset({"Broadcast", "Concat", "Convert", "Reshape", "Transpose", "Unsqueeze"})

#: Types of sizes, and of comparisons with them.
_COUNTED = frozenset({"i64", "i32", "boolean"})


def fix_sizes(model: OpenVINOModel) -> int:
    """Replace fixed sizes of keys and values that other operators read by constants.

    NPUW transposes values without their shape, and paged attention removes both with the cache.

    Returns:
        The number of redirected uses.
    """
    graph, sizes, rewriter = model.graph, model.analysis(infer_sizes), model.rewriter()
    operands, _ = _of_attention_operands(graph, sizes)
    late: set[int] = set()
    for node in graph.nodes:
        read = {value.node for value in node.sources}
        is_size = not late.isdisjoint(read) or (node.op == "ShapeOf" and not operands.isdisjoint(read))
        if is_size and node.outputs and node.outputs[0].element_type in _COUNTED:
            late.add(node.index)
    inner = late | operands
    uses = {value: graph.uses(value) for index in sorted(late) for value in graph.nodes[index].outputs}
    outside = [value for value, own in uses.items() if any(use.node.index not in inner for use in own)]
    leaving = {node.index for node in graph.backward(outside, lambda node: node.inputs if node.index in late else ())}
    fixed = [
        (use, value, [int(number) for number in numbers if number is not None])
        for value in uses
        if (numbers := [size.as_number for size in sizes.content(value) or ()]) and None not in numbers
        for use in uses[value]
        if use.node.index in leaving or use.node.index not in inner
    ]
    for use, value, known in fixed:
        constant = rewriter.constant(known if value.rank else known[0], value.element_type, f"{value.name}/fixed")
        rewriter.redirect(use.node, use.port, constant)
    rewriter.finish()
    return len(fixed)


def read_inputs(model: OpenVINOModel) -> int:
    """Read lengths from inputs instead of keys with new positions.

    Exports for one token a step have no other tensor with that length, see `_of_attention_operands`.

    Returns:
        The number of redirected uses.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes)
    tokens = token_input(graph)
    if tokens is None or fixed_size(tokens, 1) is None:
        return 0
    operands, late = _of_attention_operands(graph, sizes)
    uses = [
        (use, value, content)
        for index in sorted(late)
        for value in graph.nodes[index].outputs
        if (content := sizes.content(value)) is not None and any(size.op != "number" for size in content)
        for use in graph.uses(value)
        if use.node.index not in late | operands
    ]
    if not uses or not analyze_caches(model).of_kind("kv"):
        return 0
    rewriter = model.rewriter()
    lengths = StepBuilder(model, rewriter)
    known = [entry for entry in uses if lengths.knows(entry[2])]
    for use, value, content in known:
        write = rewriter.under(f"{use.node.name}/{value.name}")
        made = lengths.vector(content) if value.rank else write.op("Squeeze", lengths.vector(content), axes=[0])
        rewriter.redirect(use.node, use.port, write.convert(made, value.element_type))
    rewriter.finish()
    return len(known)


def read_tokens(model: OpenVINOModel) -> int:
    """Read the batch size from the tokens: paged attention removes the padding mask.

    Returns:
        The number of redirected uses.
    """
    graph = model.graph
    tokens, mask = token_input(graph), graph.parameters.get("attention_mask")
    shapes = [use.node for use in graph.uses(mask) if use.node.op == "ShapeOf"] if mask is not None else []
    if tokens is None or not shapes:
        return 0
    sizes = find_lengths(model)
    # Both have one row a sequence, also if the graph does not imply that.
    rows = {(sizes.shape(value) or (None,))[0] for value in (tokens, mask)}
    uses = [
        use
        for shape in shapes
        for use in graph.uses(shape.outputs[0])
        if all(sizes.content(value) in {(size,) for size in rows} for value in use.node.outputs)
    ]
    if not uses:
        return 0
    rewriter = model.rewriter()
    write = rewriter.under("batch")
    made: dict[str, Handle] = {}
    for use in uses:
        kind = use.node.source(use.port).element_type
        made[kind] = made.get(kind) or write.op("ShapeOf", tokens, output_type=kind)
        rewriter.redirect(use.node, use.port, made[kind])
    rewriter.finish()
    return len(uses)


def share_reads(graph: Graph, sizes: Sizes, edits: Rewiring) -> int:
    """Redirect users of equal integers to the cheapest value.

    Args:
        graph: The graph.
        sizes: Its sizes.
        edits: Collects the redirected uses.

    Returns:
        The number of redirected uses.
    """
    operands, late = _of_attention_operands(graph, sizes)
    after = downstream_of(graph, operands)
    first: dict[object, Value] = {}
    shared: list[tuple[object, Value]] = []

    def rank(value: Value) -> tuple[bool, int]:
        return value.node in after, graph.depths[value.node]

    for node in graph.nodes:
        for value in node.outputs:
            content = sizes.content(value)
            if content is None or all(size.op == "number" for size in content):
                continue
            key = (content, value.shape, value.element_type)
            shared.append((key, value))
            if node.index not in late and (key not in first or rank(value) < rank(first[key])):
                first[key] = value
    # A value is only replaced by a value of lower or equal rank, so that no cycle can arise.
    pairs = [(value, first[key]) for key, value in shared if key in first and rank(first[key]) <= rank(value)]
    return sum(edits.redirect(value, source) for value, source in pairs if source != value)


def _of_attention_operands(graph: Graph, sizes: Sizes) -> tuple[set[int], set[int]]:
    """Return nodes between caches and attention, and nodes that compute their sizes.

    In the CPU plugin, the present is an output of attention: a mask or query with a size read from the present would
    close a cycle.
    """
    read = [node.inputs[port] for node in graph.of_op("ScaledDotProductAttention") for port in (1, 2)]
    leading = graph.backward(read, lambda node: node.inputs[:1] if node.op in _TOWARDS_ATTENTION else ())
    operands = {node.index for node in leading if node.op in _TOWARDS_ATTENTION}
    late: set[int] = set()
    for node in graph.nodes:
        reads = operands if node.op == "ShapeOf" else late
        follows = any(value.node in reads for value in node.sources)
        if follows and any(sizes.content(value) is not None for value in node.outputs):
            late.add(node.index)
    return operands, late
