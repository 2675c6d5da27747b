"""Write sliding-window masks in the form from which OpenVINO reads the window's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.dialects.openvino.rewrite import integers, named, output_of, scalar
from graphpass.ir.values import MASKED_BELOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    import openvino

    from graphpass.analysis.masks.window import Condition, WindowMask
    from graphpass.ir.graph import Graph

__all__ = ["write_mask"]


def write_mask(
    mask: WindowMask, name: str, graph: Graph, compared: tuple[openvino.Output, openvino.Output] | None = None
) -> openvino.Node:
    """Write ``mask`` in the form from which paged attention reads the window.

    Args:
        mask: The mask.
        name: Prefix of the names of new nodes.
        graph: The graph that holds the parts of ``mask``.
        compared: Positions of keys and queries to compare instead of those that the mask compares.

    Returns:
        The node that attention is to read.
    """
    import openvino
    from openvino import opset13

    keys, positions = compared or (output_of(graph, mask.keys), output_of(graph, mask.queries))
    offset = opset13.constant([[[[-mask.window]]]], dtype=positions.get_element_type())
    first = named(opset13.add(positions, named(offset, f"{name}/offset")), f"{name}/first")
    in_window = named(opset13.greater(keys, first), f"{name}/in_window")
    others = [
        _written(graph, other, f"{name}/other_{number}")
        for number, other in enumerate(_causal_first(graph, mask.others))
    ]
    # The matcher wants four Ands: the window with anything, with the causal condition, with anything, with padding.
    while len(others) > 2:
        others[-2:] = [named(opset13.bitwise_and(*others[-2:]), f"{name}/also_{len(others)}").output(0)]
    yes = named(opset13.constant(True, dtype=openvino.Type.boolean), f"{name}/true")
    others += [yes.output(0)] * (2 - len(others))
    condition = in_window
    for number, (left, right) in enumerate(((yes, None), (None, others[0]), (yes, None), (None, others[1]))):
        condition = named(opset13.bitwise_and(left or condition, right or condition), f"{name}/and_{number}")
    shape = output_of(graph, mask.shape) if mask.shape is not None else integers([1, 1, 1, 1], f"{name}/no_shape")
    expanded = named(opset13.broadcast(condition, shape, broadcast_spec="BIDIRECTIONAL"), f"{name}/expanded")
    branches = [
        named(opset13.constant(value, dtype=getattr(openvino.Type, mask.element_type)), f"{name}/{part}")
        for value, part in ((mask.kept, "kept"), (mask.masked, "masked"))
    ]
    chosen = named(opset13.select(expanded, *branches), f"{name}/chosen")
    bounds = [output_of(graph, bound) for bound in mask.bounds] or _everything(name)
    return named(opset13.slice(chosen, *bounds), name)


def _causal_first(graph: Graph, others: Sequence[Condition]) -> list[Condition]:
    """Put conditions that compare positions first: NPUW wants them right after the window.

    Its phi3_sliding_mask.cpp (openvino 2026.4.1) mends ``And(And(., Greater), LessEqual)`` for prompts that it pads.
    """
    return sorted(others, key=lambda other: other.compares(graph) is None)


def _written(graph: Graph, condition: Condition, name: str) -> openvino.Output:
    from openvino import opset13

    output = output_of(graph, condition.value)
    if graph.producer(condition.value).op == "Parameter" and condition.value.rank == 2:
        kept = opset13.convert(output, "boolean")
        return named(opset13.unsqueeze(kept, integers([1, 2], f"{name}/axes")), name).output(0)
    if condition.value.element_type != "boolean":
        limit = scalar(MASKED_BELOW, output.get_element_type(), f"{name}/masked_below")
        return named(opset13.greater(output, limit), name).output(0)
    return output if condition.holds else named(opset13.logical_not(output), name).output(0)


def _everything(name: str) -> list[openvino.Output]:
    """Return bounds of a Slice that keeps all: the matcher wants one."""
    bounds = (("start", 0), ("stop", 2**63 - 1), ("step", 1), ("axis", 3))
    return [integers([value], f"{name}/{part}").output(0) for part, value in bounds]
