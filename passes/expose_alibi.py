"""The pass `expose-alibi`."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.masks import added_terms, alibi_operands, is_exposed_alibi, mask_facts, unbounded
from graphpass.analysis.values import keeps_elements, one_number
from graphpass.manager import Changed, Pass, PassResult, Unchanged
from graphpass.masked import MASKED, MASKED_BELOW
from graphpass.model import Dialect
from graphpass.openvino_model import OpenVINOModel
from graphpass.rewrite import integers, named, output_of, scalar

if TYPE_CHECKING:
    import numpy
    import openvino

    from graphpass.graph import Graph, Node, Value

__all__ = ["ExposeAlibi"]

#: Operators that keep elements in order, so that heads stay in front of positions.
_LAYOUT = frozenset({"Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class ExposeAlibi(Pass[OpenVINOModel]):
    """Write ALiBi, slopes times positions, in the one form that paged attention finds beside a mask.

    Paged attention (openvino.genai's default backend) drops the mask. Of what a model adds to the scores it keeps
    slopes that are multiplied with positions, where they stand in the branch of a Select; in a sum it loses them
    without a word (alibi_slopes_extractor in state_management_pattern.cpp of openvino; observed with 2026.4.1).

    Shapes:
        mask f32 ``[batch, heads, queries, keys]``; slopes ``[heads]``; positions ``[batch, 1, keys]``

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
        for node in graph.of_op("ScaledDotProductAttention"):
            mask = node.inputs[3] if len(node.inputs) > 3 else None
            bias = _bias(graph, mask) if mask is not None else None
            if bias is None:
                continue
            if reason := _obstacle(graph, node, bias):
                notes.append(f"ALiBi of {node.name} stays as it is: {reason}")
                continue
            node.native.input(3).replace_source_output(_write(graph, bias, f"{node.name}/alibi").output(0))
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
    """

    slopes: numpy.ndarray
    positions: Value
    term: Value
    masks: tuple[Value, ...]
    conditions: tuple[tuple[Value, Node | None], ...]


def _bias(graph: Graph, mask: Value) -> _Bias | None:
    found: list[tuple[Value, numpy.ndarray, Value]] = []
    masks, conditions = [], []
    for term in (unbounded(graph, term) for term in added_terms(graph, mask)):
        inner, condition = _selected(graph, term)
        product = _product(graph, inner)
        if product is None:
            masks.append(term)
            continue
        found.append((inner, *product))
        conditions += condition
    if not found or not (masks or conditions) or len({(one.size, positions) for _, one, positions in found}) > 1:
        return None
    if len(found) == len(conditions) and any(cut is not None for _, cut in conditions):
        # Nothing says that what the Slice leaves of the positions are all keys.
        return None
    if any(is_exposed_alibi(graph, term) for term, _, _ in found):
        return None
    # Some models (Falcon) add it to the scores and to the mask.
    slopes = functools.reduce(operator.add, (slopes for _, slopes, _ in found))
    return _Bias(slopes, found[0][2], found[0][0], tuple(masks), tuple(conditions))


def _selected(graph: Graph, term: Value) -> tuple[Value, list[tuple[Value, Node | None]]]:
    """What ``term`` is where no Select makes it a number that counts as masked, and the Select's condition."""
    node, cut = graph.producer(term), None
    if node.op == "Slice" and node.inputs[0] is not None:
        node, cut = graph.producer(node.inputs[0]), node
    if node.op != "Select" or node.inputs[0] is None or node.inputs[2] is None:
        return term, []
    number = one_number(graph, node.inputs[1])
    if number is None or number > MASKED_BELOW or node.inputs[0].rank != term.rank:
        return term, []
    return node.inputs[2], [(node.inputs[0], cut)]


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
            number = one_number(graph, node.inputs[1])
            if number is None or (node.op == "Divide" and number == 0):
                return None
            factor *= number if node.op == "Multiply" else 1 / number
        elif node.op not in _LAYOUT and not keeps_elements(node):
            return None
        value = node.inputs[0]
    return None


def _obstacle(graph: Graph, attention: Node, bias: _Bias) -> str | None:
    heads, positions = bias.slopes.size, bias.positions
    if not _is_by_head(bias.term, heads, attention.inputs[0]):
        return f"its slopes are for {heads} heads, and what is added has another shape"
    if positions.shape is None or len(positions.shape) != 3 or positions.shape[1] != 1:
        return "its positions are not [batch, 1, keys]"
    for mask in bias.masks:
        facts = mask_facts(graph, mask)
        if facts.unknown is not None or facts.parts - {"causal", "input"}:
            return "something besides a mask is added to it"
    return None


def _is_by_head(term: Value, heads: int, query: Value | None) -> bool:
    """Whether ``term`` is ``[batch, heads, 1, keys]``.

    Where the export left sizes open, all but the third are right if the query has as many heads as there are slopes:
    a product with fewer elements than ``batch * heads * keys`` would not fit, and one with more is no such product.
    """
    shape = term.shape
    if shape is None or len(shape) != 4:
        return False
    if isinstance(shape[1], int):
        return shape[1] == heads
    return shape[2] == 1 and query is not None and query.shape is not None and query.shape[-3] == heads


def _write(graph: Graph, bias: _Bias, name: str) -> openvino.Node:
    import numpy
    from openvino import opset13

    kind = output_of(graph, bias.term).get_element_type()
    slopes = opset13.constant(bias.slopes.reshape(1, -1, 1).astype(numpy.float32), dtype=kind)
    positions = output_of(graph, bias.positions)
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
