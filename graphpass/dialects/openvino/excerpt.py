"""Copy some nodes of an OpenVINO graph."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import openvino
from openvino import opset13

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from graphpass.ir.graph import Graph, Node, Value

#: Prefix of the names of inputs and outputs that an excerpt adds.
_NAME = "graphpass/excerpt"

_ENDS = frozenset({"Result", "Assign", "Parameter"})


def excerpt_of(model: openvino.Model, nodes: Iterable[Node]) -> openvino.Model:
    """Return a copy of ``nodes``, with inputs in place of values from other nodes.

    Nodes whose users are all left out become outputs.

    Args:
        model: The model, whose edges are changed temporarily.
        nodes: Nodes of its view.
    """
    kept = {node.index: node for node in nodes}
    results = [node.native for node in kept.values() if node.op == "Result"]
    for number, top in enumerate(_tops(kept)):
        results.append(opset13.result(top.native.output(0)))
        results[-1].set_friendly_name(f"{_NAME}/{number}")
    sinks = [node.native for node in kept.values() if node.op == "Assign"]
    parameters = [node.native for node in kept.values() if node.op == "Parameter"]
    with _cut_off(kept) as more:
        copy = openvino.Model(results, sinks, [*parameters, *more], model.get_friendly_name()).clone()
    for key in model.rt_info:
        copy.set_rt_info(model.get_rt_info([key]).value, [key])
    return copy


@contextlib.contextmanager
def _cut_off(kept: Mapping[int, Node]) -> Iterator[list[openvino.Node]]:
    """Replace values from other nodes by inputs of ``kept`` nodes during the block.

    Yields:
        The Parameters in their place.
    """
    made: dict[tuple[int, int], openvino.Node] = {}
    before = []
    try:
        for node in kept.values():
            for port, value in _from_outside(node, kept):
                key = value.node, value.port
                source = node.native.input_value(port)
                if key not in made:
                    made[key] = opset13.parameter(source.get_partial_shape(), source.get_element_type())
                    made[key].set_friendly_name(f"{_NAME}/{len(made)}")
                before.append((node.native.input(port), source))
                node.native.input(port).replace_source_output(made[key].output(0))
        yield list(made.values())
    finally:
        for target, source in before:
            target.replace_source_output(source)


def counterparts(graph: Graph, copy: Graph, nodes: Iterable[Node]) -> dict[int, int]:
    """Map nodes of a graph to nodes of its excerpt, whose order may differ.

    Args:
        graph: The original view.
        copy: View of the excerpt.
        nodes: The nodes that were copied.

    Returns:
        Index in the excerpt, by index in the original view.
    """
    kept = {node.index: node for node in nodes}
    ends = {_called(node): node for node in copy.of_op("Result", "Assign", "Parameter")}
    pairs = [(top, copy.producer(ends[f"{_NAME}/{number}"].source())) for number, top in enumerate(_tops(kept))]
    pairs += [(node, ends[_called(node)]) for node in kept.values() if node.op in _ENDS]
    by_index: dict[int, int] = {}
    while pairs:
        node, twin = pairs.pop()
        if node.index not in by_index:
            by_index[node.index] = twin.index
            pairs += [
                (graph.producer(value), copy.producer(other))
                for value, other in zip(node.inputs, twin.inputs, strict=True)
                if value is not None and other is not None and value.node in kept
            ]
    return by_index


def _called(node: Node) -> str:
    name: str = node.native.get_friendly_name()
    return name


def _tops(kept: Mapping[int, Node]) -> list[Node]:
    """Return the nodes that have no users among ``kept``."""
    read = {value.node for node in kept.values() for value in node.sources}
    return [node for index, node in kept.items() if index not in read and node.op not in _ENDS]


def _from_outside(node: Node, kept: Mapping[int, Node]) -> Iterator[tuple[int, Value]]:
    return ((port, value) for port, value in enumerate(node.inputs) if value is not None and value.node not in kept)
