"""The pass `expose-window`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy

from graphpass.analysis.windows import compared_positions, one_number
from graphpass.manager import Changed, Pass, PassResult, Unchanged
from graphpass.model import Dialect
from graphpass.openvino_model import OpenVINOModel
from graphpass.rewrite import integers, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    import openvino

    from graphpass.graph import Graph, Value

__all__ = ["ExposeWindow", "WindowMask", "read_mask", "write_mask"]

_AND = frozenset({"LogicalAnd", "BitwiseAnd"})
_OR = frozenset({"LogicalOr", "BitwiseOr"})
_NOT = frozenset({"LogicalNot", "BitwiseNot"})

#: Below this, ``exp`` of a score is 0 beside any other score.
_MASKED_BELOW = -1e3


@dataclass(frozen=True)
class ExposeWindow(Pass[OpenVINOModel]):
    """Write sliding-window masks in the form from which OpenVINO reads the window's size.

    Paged attention does not read masks: SDPAToPagedAttention takes the window's size out of the mask's subgraph, and
    where it does not recognise that, openvino.genai's default backend silently attends to everything. The form is the
    one that gpt-oss and Gemma 3 have when optimum exports them (gpt_oss_sliding_window_pattern in OpenVINO's
    state_management_pattern.cpp).
    Layers with the same mask share one.

    Shapes:
        mask broadcastable to ``[batch, heads, length, sequence]``; the window is a constant number of positions.

    Before:
        and(.., key_position > query_position - window, ..) in any order, or its negation with or; the comparison in any
        form -> Broadcast, Slice, Select in any order
    After:
        BitwiseAnd(BitwiseAnd(True, BitwiseAnd(BitwiseAnd(True, key_position > query_position + -window), causal)),
        padding) -> Broadcast -> Select(., 0, lowest) -> Slice
    """

    name: ClassVar[str] = "expose-window"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        graph = model.graph
        rebuilt: dict[WindowMask, openvino.Node] = {}
        count = 0
        for node in graph.of_op("ScaledDotProductAttention"):
            mask = read_mask(graph, node.inputs[3]) if len(node.inputs) > 3 else None
            if mask is None or _is_exposed(node.native.input_value(3)):
                continue
            if mask not in rebuilt:
                rebuilt[mask] = write_mask(mask, f"{node.name}/window_mask", graph)
            node.native.input(3).replace_source_output(rebuilt[mask].output(0))
            count += 1
        if not count:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"windows exposed": count, "masks": len(rebuilt)})


@dataclass(frozen=True)
class _Condition:
    """A condition, or its negation where it not ``holds``."""

    value: Value
    holds: bool


@dataclass(frozen=True)
class WindowMask:
    """What a sliding-window mask is made of.

    Attributes:
        keys: Positions of the keys, compared with the queries'.
        queries: Positions of the queries.
        window: How many positions a query sees, itself included.
        others: The other conditions, outermost first.
        shape: What the condition is broadcast to; ``None`` where it is not.
        bounds: Start, stop, step and axes of the Slice on the way; empty where there is none.
        kept: What is added where the condition holds.
        masked: What is added elsewhere.
        element_type: Of the mask.
    """

    keys: Value
    queries: Value
    window: int
    others: tuple[_Condition, ...]
    shape: Value | None
    bounds: tuple[Value, ...]
    kept: float
    masked: float
    element_type: str


def read_mask(graph: Graph, mask: Value | None) -> WindowMask | None:
    """The mask behind ``mask``, where it selects between constants by a condition that holds a window."""
    bounds: tuple[Value, ...] = ()
    shape: Value | None = None
    values: list[float] = []
    lowest = -numpy.inf
    value = mask
    while True:
        assert value is not None
        node = graph.producer(value)
        given = [operand for operand in node.inputs if operand is not None]
        if node.op == "Slice" and len(given) == 5 and not bounds and shape is None:
            bounds = tuple(given[1:])
        elif node.op == "Broadcast" and shape is None and len(given) == 2:
            shape = given[1]
        elif node.op == "Maximum" and not values and (limit := one_number(graph, given[1])) is not None:
            lowest = max(lowest, limit)
        elif node.op == "Select" and not values:
            numbers = [one_number(graph, operand) for operand in given[1:]]
            values = [max(number, lowest) for number in numbers if number is not None]
            if len(values) != 2 or max(values) < 0 or min(values) > _MASKED_BELOW:
                return None
        elif node.op != "Convert" or (values and given[0].element_type != value.element_type):
            break
        value = given[0]
    if not values or mask is None:
        return None
    terms = _terms(graph, value, values[0] > values[1])
    for number, term in enumerate(terms):
        found = compared_positions(graph, term.value, holds=term.holds)
        if found is not None and not found.is_negated and found.bound < 0:
            others = (*terms[:number], *terms[number + 1 :])
            extremes = (max(values), min(values), mask.element_type)
            return WindowMask(found.keys, found.queries, -found.bound, others, shape, bounds, *extremes)
    return None


def _terms(graph: Graph, condition: Value, holds: bool) -> list[_Condition]:
    """The conditions that ``condition`` (or its negation) joins by And; constants that are true are dropped."""
    terms: list[_Condition] = []
    pending = [_Condition(condition, holds)]
    while pending:
        term = pending.pop()
        node = graph.producer(term.value)
        given = [operand for operand in node.inputs if operand is not None]
        if node.op in (_AND if term.holds else _OR):
            pending += [_Condition(operand, term.holds) for operand in given]
        elif node.op in _NOT:
            pending.append(_Condition(given[0], not term.holds))
        elif node.op == "Convert" and given[0].element_type == term.value.element_type:
            pending.append(_Condition(given[0], term.holds))
        elif one_number(graph, term.value) != float(term.holds):
            terms.append(term)
    return terms


def _output(graph: Graph, value: Value) -> openvino.Output:
    output: openvino.Output = graph.producer(value).native.output(value.port)
    return output


def _causal_first(graph: Graph, others: Sequence[_Condition]) -> list[_Condition]:
    """``others`` with those that compare positions in front: NPUW wants them right behind the window.

    Its phi3_sliding_mask.cpp (openvino 2026.4.1) mends ``And(And(., Greater), LessEqual)`` for prompts that it pads.
    """
    return sorted(others, key=lambda other: compared_positions(graph, other.value, holds=other.holds) is None)


def write_mask(
    mask: WindowMask, name: str, graph: Graph, compared: tuple[openvino.Output, openvino.Output] | None = None
) -> openvino.Node:
    """Write ``mask`` in the form from which paged attention reads the window.

    Args:
        mask: What to write.
        name: How names of the new nodes begin.
        graph: Where the parts of ``mask`` are.
        compared: Positions of keys and queries to compare instead of those that the mask compares.

    Returns:
        What attention is to read.
    """
    import openvino
    from openvino import opset13

    keys, positions = compared or (_output(graph, mask.keys), _output(graph, mask.queries))
    offset = opset13.constant([[[[-mask.window]]]], dtype=positions.get_element_type())
    first = named(opset13.add(positions, named(offset, f"{name}/offset")), f"{name}/first")
    in_window = named(opset13.greater(keys, first), f"{name}/in_window")
    others = [
        output if other.holds else named(opset13.logical_not(output), f"{name}/not_{number}").output(0)
        for number, other in enumerate(_causal_first(graph, mask.others))
        for output in (_output(graph, other.value),)
    ]
    # The matcher wants four Ands: the window with anything, with the causal condition, with anything, with padding.
    while len(others) > 2:
        others[-2:] = [named(opset13.bitwise_and(*others[-2:]), f"{name}/also_{len(others)}").output(0)]
    yes = named(opset13.constant(True, dtype=openvino.Type.boolean), f"{name}/true")
    others += [yes.output(0)] * (2 - len(others))
    condition = in_window
    for number, (left, right) in enumerate(((yes, None), (None, others[0]), (yes, None), (None, others[1]))):
        condition = named(opset13.bitwise_and(left or condition, right or condition), f"{name}/and_{number}")
    shape = _output(graph, mask.shape) if mask.shape is not None else integers([1, 1, 1, 1], f"{name}/no_shape")
    expanded = named(opset13.broadcast(condition, shape, broadcast_spec="BIDIRECTIONAL"), f"{name}/expanded")
    branches = [
        named(opset13.constant(value, dtype=getattr(openvino.Type, mask.element_type)), f"{name}/{part}")
        for value, part in ((mask.kept, "kept"), (mask.masked, "masked"))
    ]
    chosen = named(opset13.select(expanded, *branches), f"{name}/chosen")
    bounds = [_output(graph, bound) for bound in mask.bounds] or _everything(name)
    return named(opset13.slice(chosen, *bounds), name)


def _everything(name: str) -> list[openvino.Output]:
    """Bounds of a Slice that keeps all: the matcher wants one."""
    bounds = (("start", 0), ("stop", 2**63 - 1), ("step", 1), ("axis", 3))
    return [integers([value], f"{name}/{part}").output(0) for part, value in bounds]


def _is_exposed(mask: openvino.Output) -> bool:
    """Whether the matcher in state_management_pattern.cpp takes ``mask`` as it is."""
    path = (("Slice", 0), ("Select", 0), ("Broadcast", 0), ("BitwiseAnd", 0), ("BitwiseAnd", 1), ("BitwiseAnd", 0))
    node = mask.get_node()
    for kind, port in (*path, ("BitwiseAnd", 1), ("Greater", 1)):
        if node.get_type_name() != kind:
            return False
        node = node.input_value(port).get_node()
    return bool(node.get_type_name() == "Add" and node.input_value(1).get_node().get_type_name() == "Constant")
