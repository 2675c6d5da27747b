"""The pass `expose-alibi`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.masks.facts import (
    added_terms,
    alibi_operands,
    counts_up,
    is_exposed_alibi,
    mask_facts,
    unbounded,
)
from graphpass.analysis.shapes.linear_size import Size
from graphpass.analysis.shapes.sizes import Sizes
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.constants import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import RESHAPES
from graphpass.ir.rewriter import Handle, Operand, Writer
from graphpass.ir.values import MASKED, MASKED_BELOW, fixed_size, is_value_preserving


@dataclass(frozen=True)
class ExposeAlibi(Pass[OpenVINOModel]):
    """Write ALiBi in the one form that paged attention finds beside a mask.

    Paged attention (openvino.genai's default backend) drops the mask. It keeps slopes that are multiplied with
    positions in the branch of a Select; in a sum it loses them without a word (alibi_slopes_extractor in
    state_management_pattern.cpp of openvino; observed with 2026.4.1).

    Constant positions, of which a Slice takes as many as there are keys (MPT), become those that
    ``attention_mask`` implies: a Softmax does not depend on their start, and NPUW leaves places in the cache empty.

    Shapes:
        mask f32 ``[batch, heads, queries, keys]``; slopes ``[heads]``; positions ``[batch, 1, keys]``

    Before:
        Add(Reshape(Multiply(positions, slopes)), 0 or lowest) -> ScaledDotProductAttention
    After:
        Select(lowest?, -65504, Reshape(Reshape(Multiply(slopes, positions)))) -> ScaledDotProductAttention
    """

    name = "expose-alibi"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        graph = model.graph
        pairs = [(node, _bias(graph, node.input(3))) for node in graph.of_op("ScaledDotProductAttention")]
        found = [(node, bias) for node, bias in pairs if bias is not None]
        sizes = find_lengths(model) if any(bias.part for _, bias in found) else None
        mask = graph.parameters.get("attention_mask")
        rewriter = model.rewriter()
        counted: Handle | None = None
        count, notes = 0, []
        for node, bias in found:
            if reason := _obstacle(graph, node, bias, sizes, has_mask=mask is not None):
                notes.append(f"ALiBi of {node.name} stays as it is: {reason}")
                continue
            if bias.part is not None and counted is None:
                counted = _counted(rewriter.under("alibi"), mask)
            positions = bias.positions if bias.part is None else counted
            rewriter.redirect(node, 3, _write(rewriter.under(f"{node.name}/alibi"), bias, positions))
            count += 1
        rewriter.finish()
        return Done({"attention with ALiBi": count}, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Bias:
    """A mask that is a sum.

    Attributes:
        slopes: Slopes by head, f64 [heads], with all factors.
        positions: The other operand of their product.
        term: Their product as it is added, laid out.
        masks: The other terms.
        conditions: Conditions that hide keys, each with the Slice that cuts it, if any.
        part: The Slice that cuts constant positions in the product to the keys.
    """

    slopes: numpy.ndarray
    positions: Value
    term: Value
    masks: tuple[Value, ...]
    conditions: tuple[tuple[Value, Node | None], ...]
    part: Node | None = None


def _bias(graph: Graph, mask: Value | None) -> _Bias | None:
    if mask is None:
        return None
    found: list[tuple[Value, numpy.ndarray, Value]] = []
    masks, conditions, parts = [], [], []
    for term in (unbounded(graph, term) for term in added_terms(graph, mask)):
        inner, condition = _selected(graph, term)
        inner, part = _part_of_rows(graph, _unshifted(graph, inner))
        product = _product(graph, inner)
        if product is None:
            masks.append(term)
            continue
        found.append((inner, *product))
        conditions += condition
        parts.append(part)
    if not found or not (masks or conditions) or len({(one.size, positions) for _, one, positions in found}) > 1:
        return None
    if len(found) == len(conditions) and any(cut is not None for _, cut in conditions):
        # Nothing says that what the Slice leaves of the positions are all keys.
        return None
    if any(is_exposed_alibi(graph, term) for term, _, _ in found):
        return None
    if len({part is not None and part.index for part in parts}) > 1:
        return None
    # Some models (Falcon) add it to the scores and to the mask.
    slopes = numpy.sum([slopes for _, slopes, _ in found], axis=0)
    return _Bias(slopes, found[0][2], found[0][0], tuple(masks), tuple(conditions), parts[0])


def _selected(graph: Graph, term: Value) -> tuple[Value, list[tuple[Value, Node | None]]]:
    """Strip a Select that masks ``term``; return its condition and their Slice, too."""
    node, cut = graph.producer(term), None
    if node.op == "Slice":
        node, cut = graph.producer(node.source()), node
    number = fold_scalar(graph, node.inputs[1]) if node.op == "Select" else None
    if number is None or number > MASKED_BELOW or node.source().rank != term.rank:
        return term, []
    return node.source(2), [(node.source(), cut)]


def _unshifted(graph: Graph, term: Value) -> Value:
    """Strip copies to all rows and added numbers: no Softmax depends on them."""
    while (node := graph.producer(term)).op in {"Add", "Broadcast"}:
        first, second = node.source(), node.source(1)
        if node.op == "Add" and fold_scalar(graph, first) is not None:
            first, second = second, first
        if len(node.inputs) > 2 or (node.op == "Add" and fold_scalar(graph, second) is None):
            break
        term = first
    return term


def _part_of_rows(graph: Graph, term: Value) -> tuple[Value, Node | None]:
    """Strip a Slice along the last axis; return it, too."""
    node = graph.producer(term)
    if node.op != "Slice" or len(node.inputs) != 5 or node.attributes.get("axes") != ((node.source().rank or 0) - 1,):
        return term, None
    return (node.source(), node) if fold_scalar(graph, node.inputs[3]) == 1 else (term, None)


def _product(graph: Graph, term: Value) -> tuple[numpy.ndarray, Value] | None:
    """Return slopes, with all factors of the product, and positions."""
    factor = 1.0
    value = term
    while True:
        node = graph.producer(unbounded(graph, value))
        operands = alibi_operands(graph, node)
        if operands is not None:
            return operands[0].astype("float64") * factor, operands[1]
        if node.op in {"Multiply", "Divide"}:
            number = fold_scalar(graph, node.inputs[1])
            if number is None or (node.op == "Divide" and number == 0):
                return None
            factor *= number if node.op == "Multiply" else 1 / number
        elif node.op not in RESHAPES and not is_value_preserving(node):
            return None
        value = node.source()


def _obstacle(graph: Graph, attention: Node, bias: _Bias, sizes: Sizes | None, *, has_mask: bool) -> str | None:
    heads, positions = bias.slopes.size, bias.positions
    is_constant = counts_up(graph, positions)
    if not _is_by_head(bias.term, heads, attention.inputs[0]):
        return f"its slopes are for {heads} heads, and what is added has another shape"
    if is_constant or bias.part is not None:
        if not is_constant or bias.part is None or sizes is None or not _takes_keys(graph, bias, bias.part, sizes):
            return "nothing says that as many of its positions are taken as there are keys"
    elif positions.shape is None or len(positions.shape) != 3 or positions.shape[1] != 1:
        return "its positions are not [batch, 1, keys]"
    for mask in bias.masks:
        facts = mask_facts(graph, mask)
        if facts.unknown is not None or facts.parts - {"causal", "input"}:
            return "something besides a mask is added to it"
    if bias.part is not None and not has_mask:
        return "no attention_mask tells the positions that it keeps as a constant"
    return None


def _is_by_head(term: Value, heads: int, query: Value | None) -> bool:
    """Return whether ``term`` is ``[batch, heads, 1, keys]``.

    If the export left sizes open, all but the third are right if the query has as many heads as there are slopes:
    a product with fewer elements than ``batch * heads * keys`` would not fit, and one with more is no such product.
    """
    shape = term.shape if term.shape is None or len(term.shape) != 3 else (1, *term.shape)
    if shape is None or len(shape) != 4:
        return False
    if isinstance(shape[1], int):
        return shape[1] == heads and (shape[2] == 1 or not isinstance(shape[2], int))
    return shape[2] == 1 and fixed_size(query, -3) == heads


def _takes_keys(graph: Graph, bias: _Bias, part: Node, sizes: Sizes) -> bool:
    """Return whether ``part`` leaves one position for each column of a mask.

    Its start shifts all scores of a head alike.
    """
    end = _end(graph, part)
    ends = sizes.content(part.inputs[2]) if end is None else (Size(end),)
    starts = sizes.content(part.inputs[1])
    masks = [*bias.masks, *(condition for condition, cut in bias.conditions if cut is None)]
    shapes = [sizes.shape(mask) for mask in masks]
    columns = {shape[-1] for shape in shapes if shape}
    return starts is not None and ends is not None and columns == {ends[0] - starts[0]}


def _end(graph: Graph, part: Node) -> int | None:
    """Return a constant end of ``part``; exporters keep all by the highest number."""
    end, size = fold_scalar(graph, part.inputs[2]), fixed_size(part.source(), -1)
    return min(int(end), size) if end is not None and size is not None else None


def _counted(write: Writer, mask: Value | None) -> Handle:
    """Make the positions ``[batch, 1, keys]`` that an ``attention_mask`` implies, from 1 on."""
    return write.op("Unsqueeze", write.op("CumSum", write.op("Convert", mask, to="i64"), axis=1), axes=[1])


def _write(write: Writer, bias: _Bias, positions: Operand) -> Handle:
    """Make the mask in the matcher's form: slopes come first."""
    kind = bias.term.element_type
    slopes = write.constant(bias.slopes.reshape(1, -1, 1).astype("f4"), "slopes", kind)
    product = write.op("Multiply", slopes, write.convert(positions, kind, "positions"), label="product")
    rows = write.op("Reshape", product, [-1, 1, 0], label="rows")
    shape = write.op("Concat", [-1, bias.slopes.size, 1], write.size(rows, 2, "keys"), axis=0, label="shape")
    added = write.op("Reshape", rows, shape, zero_keeps=False, label="by_head")
    hidden = [
        condition if cut is None else write.op("Slice", condition, *cut.inputs[1:], label="condition")
        for condition, cut in bias.conditions
    ]
    for mask in bias.masks:
        lowest = write.number(MASKED_BELOW, mask.element_type, "masked_below")
        hidden.append(write.op("Less", mask, lowest, label="hidden"))
    any_hidden = hidden[0]
    for other in hidden[1:]:
        any_hidden = write.op("LogicalOr", any_hidden, other, label="any_hidden")
    return write.op("Select", any_hidden, write.number(MASKED, kind, "masked"), added)
