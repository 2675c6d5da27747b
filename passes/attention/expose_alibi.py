"""The pass `expose-alibi`."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import find_input, has_input, integers, named, output_of, scalar
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.constants import fold_scalar
from graphpass.ir.operators import RESHAPES
from graphpass.ir.types import Dialect
from graphpass.ir.values import MASKED, MASKED_BELOW, is_value_preserving

if TYPE_CHECKING:
    import numpy
    import openvino

    from graphpass.analysis.shapes.sizes import Sizes
    from graphpass.ir.graph import Graph, Node, Value

__all__ = ["ExposeAlibi"]

#: Operators that keep elements in order, so that heads stay in front of positions.


@dataclass(frozen=True)
class ExposeAlibi(Pass[OpenVINOModel]):
    """Write ALiBi, slopes times positions, in the one form that paged attention finds beside a mask.

    Paged attention (openvino.genai's default backend) drops the mask. Of what a model adds to the scores it keeps
    slopes that are multiplied with positions, where they stand in the branch of a Select; in a sum it loses them
    without a word (alibi_slopes_extractor in state_management_pattern.cpp of openvino; observed with 2026.4.1).

    Shapes:
        mask f32 ``[batch, heads, queries, keys]``; slopes ``[heads]``; positions ``[batch, 1, keys]``

    Positions that are constant, of which a Slice takes as many as there are keys (MPT), become those that
    ``attention_mask`` tells: a Softmax does not see where they start, and NPUW leaves places in the cache empty.

    Before:
        Add(Reshape(Multiply(positions, slopes)), 0 or lowest) -> ScaledDotProductAttention
    After:
        Select(lowest?, -65504, Reshape(Reshape(Multiply(slopes, positions)))) -> ScaledDotProductAttention
    """

    name: ClassVar[str] = "expose-alibi"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        graph = model.graph
        count, notes = 0, []
        masked = [node for node in graph.of_op("ScaledDotProductAttention") if len(node.inputs) > 3]
        found = [(node, _bias(graph, node.inputs[3])) for node in masked]
        sizes = find_lengths(model) if any(bias and bias.part for _, bias in found) else None
        has_mask = has_input(model.ov_model, "attention_mask")
        counted: openvino.Output | None = None
        for node, bias in found:
            if bias is None:
                continue
            if reason := _obstacle(graph, node, bias, sizes, has_mask=has_mask):
                notes.append(f"ALiBi of {node.name} stays as it is: {reason}")
                continue
            if bias.part is None:
                positions = output_of(graph, bias.positions)
            else:
                positions = counted = counted or _counted(find_input(model.ov_model, "attention_mask"), "alibi")
            written = _write(graph, bias, positions, f"{node.name}/alibi")
            node.native.input(3).replace_source_output(written.output(0))
            count += 1
        if not count:
            return Unchanged(tuple(notes))
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"attention with ALiBi": count}, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Bias:
    """A mask that is a sum.

    Attributes:
        slopes: By head, f64 [heads], with all factors.
        positions: What they are multiplied with.
        term: Their product as it is added, laid out.
        masks: What else is added.
        conditions: Where nothing is seen, each with the Slice that cuts it, where there is one.
        part: The Slice that takes from the product as many positions as there are keys, where those are constant.
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
    slopes = functools.reduce(operator.add, (slopes for _, slopes, _ in found))
    return _Bias(slopes, found[0][2], found[0][0], tuple(masks), tuple(conditions), parts[0])


def _selected(graph: Graph, term: Value) -> tuple[Value, list[tuple[Value, Node | None]]]:
    """What ``term`` is where no Select makes it a number that counts as masked, and the Select's condition."""
    node, cut = graph.producer(term), None
    if node.op == "Slice" and node.inputs[0] is not None:
        node, cut = graph.producer(node.inputs[0]), node
    if node.op != "Select" or node.inputs[0] is None or node.inputs[2] is None:
        return term, []
    number = fold_scalar(graph, node.inputs[1])
    if number is None or number > MASKED_BELOW or node.inputs[0].rank != term.rank:
        return term, []
    return node.inputs[2], [(node.inputs[0], cut)]


def _unshifted(graph: Graph, term: Value) -> Value:
    """What ``term`` copies to all rows, without a number that is added everywhere, which no Softmax sees."""
    while (node := graph.producer(term)).op in {"Add", "Broadcast"}:
        first, second = node.inputs[:2]
        if node.op == "Add" and first is not None and fold_scalar(graph, first) is not None:
            first, second = second, first
        is_same = len(node.inputs) == 2 if node.op == "Broadcast" else fold_scalar(graph, second) is not None
        if first is None or not is_same:
            break
        term = first
    return term


def _part_of_rows(graph: Graph, term: Value) -> tuple[Value, Node | None]:
    """What the Slice that makes ``term`` takes a part of along the last axis, and the Slice."""
    node = graph.producer(term)
    if node.op != "Slice" or len(node.inputs) != 5 or node.inputs[0] is None or node.inputs[0].rank is None:
        return term, None
    step, axis = (fold_scalar(graph, node.inputs[port]) for port in (3, 4))
    is_last = axis in {-1, node.inputs[0].rank - 1}
    return (node.inputs[0], node) if step == 1 and is_last else (term, None)


def _product(graph: Graph, term: Value) -> tuple[numpy.ndarray, Value] | None:
    """Slopes, with the numbers that the product is multiplied with after it, and positions."""
    factor = 1.0
    value: Value | None = term
    while value is not None:
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
        value = node.inputs[0]
    return None


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
    """Whether ``term`` is ``[batch, heads, 1, keys]``.

    Where the export left sizes open, all but the third are right if the query has as many heads as there are slopes:
    a product with fewer elements than ``batch * heads * keys`` would not fit, and one with more is no such product.
    """
    shape = term.shape if term.shape is None or len(term.shape) != 3 else (1, *term.shape)
    if shape is None or len(shape) != 4:
        return False
    if isinstance(shape[1], int):
        return shape[1] == heads and (shape[2] == 1 or not isinstance(shape[2], int))
    return shape[2] == 1 and query is not None and query.shape is not None and query.shape[-3] == heads


def _takes_keys(graph: Graph, bias: _Bias, part: Node, sizes: Sizes) -> bool:
    """Whether ``part`` leaves a position for each key, of which a mask has a column each.

    Where it starts shifts all scores of a head alike.
    """
    end = _end(graph, part)
    ends = sizes.content(part.inputs[2]) if end is None else (Size(end),)
    starts = sizes.content(part.inputs[1])
    masks = [*bias.masks, *(condition for condition, cut in bias.conditions if cut is None)]
    shapes = [sizes.shape(mask) for mask in masks]
    columns = {shape[-1] for shape in shapes if shape}
    return starts is not None and ends is not None and columns == {ends[0] - starts[0]}


def _end(graph: Graph, part: Node) -> int | None:
    """Where ``part`` ends, if that is constant; exporters name the highest number for the end of what there is."""
    end, data = fold_scalar(graph, part.inputs[2]), part.inputs[0]
    size = data.shape[-1] if data is not None and data.shape is not None else None
    return min(int(end), size) if end is not None and isinstance(size, int) else None


def _counted(mask: openvino.Node, name: str) -> openvino.Output:
    """The positions ``[batch, 1, keys]`` that an ``attention_mask`` tells, from 1 on."""
    from openvino import opset13

    ones = named(opset13.convert(mask, "i64"), f"{name}/ones")
    summed = named(opset13.cum_sum(ones, integers(1, f"{name}/along")), f"{name}/summed")
    return named(opset13.unsqueeze(summed, integers([1], f"{name}/axes")), f"{name}/counted").output(0)


def _write(graph: Graph, bias: _Bias, positions: openvino.Output, name: str) -> openvino.Node:
    import numpy
    from openvino import opset13

    kind = output_of(graph, bias.term).get_element_type()
    slopes = opset13.constant(bias.slopes.reshape(1, -1, 1).astype(numpy.float32), dtype=kind)
    if positions.get_element_type() != kind:
        positions = named(opset13.convert(positions, kind.to_string()), f"{name}/positions").output(0)
    # The matcher wants the slopes first.
    product = named(opset13.multiply(named(slopes, f"{name}/slopes"), positions), f"{name}/product")
    rows = named(opset13.reshape(product, integers([-1, 1, 0], f"{name}/row_shape"), True), f"{name}/rows")
    length = opset13.gather(
        named(opset13.shape_of(rows, "i64"), f"{name}/rows_shape"),
        integers([2], f"{name}/last"),
        integers(0, f"{name}/axis"),
    )
    sizes = [integers([-1, bias.slopes.size, 1], f"{name}/heads"), named(length, f"{name}/keys")]
    shape = named(opset13.concat(sizes, 0), f"{name}/shape")
    added = named(opset13.reshape(rows, shape, False), f"{name}/by_head")
    hidden = []
    for number, (condition, cut) in enumerate(bias.conditions):
        hidden.append(output_of(graph, condition))
        if cut is not None:
            bounds = cut.native.input_values()[1:]
            hidden[-1] = named(opset13.slice(hidden[-1], *bounds), f"{name}/condition_{number}").output(0)
    for number, mask in enumerate(bias.masks):
        lowest = scalar(MASKED_BELOW, output_of(graph, mask).get_element_type(), f"{name}/masked_below_{number}")
        hidden.append(named(opset13.less(output_of(graph, mask), lowest), f"{name}/hidden_{number}").output(0))
    any_hidden = hidden[0]
    for number, other in enumerate(hidden[1:]):
        any_hidden = named(opset13.logical_or(any_hidden, other), f"{name}/hidden_or_{number}").output(0)
    return named(opset13.select(any_hidden, scalar(MASKED, kind, f"{name}/masked"), added), name)
