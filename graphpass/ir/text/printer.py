"""Print graphs or some of their nodes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy

from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.rewriter import claim_name
from graphpass.ir.text.statements import Literal, Statement, TensorType

#: Largest size, in elements, of a constant that is printed as an operand, and of one that is printed with a digest.
_INLINE, _DIGESTED = 8, 4096

#: Types whose elements can be printed as numbers.
_PLAIN_TYPES = {"bf16"} | {
    element_type.name for element_type in ELEMENT_TYPES.values() if element_type.dtype is not None
}


def text_of(
    graph: Graph, nodes: Collection[Node] | None = None, remarks: Mapping[int, tuple[str, ...]] | None = None
) -> str:
    """Return the text of a graph.

    Args:
        graph: The graph.
        nodes: The nodes to print, all by default. Values from other nodes become Parameters.
        remarks: Comments on nodes, by index.
    """
    return "\n".join(map(str, statements_of(graph, nodes, remarks)))


def statements_of(
    graph: Graph,
    nodes: Collection[Node] | None = None,
    remarks: Mapping[int, tuple[str, ...]] | None = None,
    inline: int = _INLINE,
) -> tuple[Statement, ...]:
    """Return the statements of a graph, with small constants as operands.

    Args:
        graph: The graph.
        nodes: See `text_of`.
        remarks: See `text_of`.
        inline: Largest size, in elements, of a constant that becomes an operand.
    """
    return tuple(_Printer(graph, remarks or {}, inline).run(graph.nodes if nodes is None else nodes))


class _Printer:
    def __init__(self, graph: Graph, remarks: Mapping[int, tuple[str, ...]], inline: int) -> None:
        self._graph, self._inline = graph, inline
        self._remarks = remarks
        self._names: dict[tuple[int, int], str] = {}
        self._taken = {node.name for node in graph.of_op("Parameter")}

    def run(self, nodes: Collection[Node]) -> Iterator[Statement]:
        wanted = {node.index for node in nodes}
        for node in sorted(nodes, key=lambda node: node.index):
            if node.op == "Constant":
                continue
            spelling = self._graph.spelling(node)
            for value in spelling.inputs:
                yield from self._source(value, wanted)
            operands = tuple(map(self._operand, spelling.inputs))
            attributes = {"name": node.name} if node.op == "Result" else _attributes(spelling.attributes)
            outputs = () if node.op in {"Assign", "Result"} else node.outputs
            results = tuple(self._name(node, value) for value in outputs)
            types = tuple(map(_type, outputs))
            remarks = self._remarks.get(node.index, ())
            yield Statement(results, spelling.kind, operands, attributes, types, remarks=remarks)

    def _source(self, value: Value | None, wanted: Collection[int]) -> Iterator[Statement]:
        """Yield the statement of a constant or outer value at its first use."""
        if value is None or (value.node, value.port) in self._names:
            return
        node = self._graph.producer(value)
        if node.op == "Constant":
            if (
                (values := self._values(value)) is not None
                and values.size <= self._inline
                and 0 not in values.shape[:-1]
            ):
                return
            digest = "" if values is None else hashlib.sha256(values.tobytes()).hexdigest()[:6]
            yield Statement((self._name(node, value),), "Constant", (), {}, (_type(value),), digest)
        elif value.node not in wanted:
            remarks = (f"made by {node.op} {node.name}",) if node.op != "Parameter" else ()
            yield Statement((self._name(node, value),), "Parameter", (), {}, (_type(value),), remarks=remarks)

    def _values(self, value: Value) -> numpy.ndarray | None:
        """Return the elements of a small constant; ``None`` if large or unreadable."""
        if value.element_type not in _PLAIN_TYPES:
            return None
        try:
            values = self._graph.constant(value, _DIGESTED)
        except FileNotFoundError:
            return None
        return values.astype(numpy.float32) if values is not None and value.element_type == "bf16" else values

    def _operand(self, value: Value | None) -> str | Literal | None:
        if value is None or (value.node, value.port) in self._names:
            return None if value is None else self._names[value.node, value.port]
        values = self._values(value)
        assert values is not None, f"{value.name} is printed before its producer"
        return Literal(values, value.element_type)

    def _name(self, node: Node, value: Value) -> str:
        if node.op == "Parameter":
            name = node.name
        else:
            name = claim_name(self._taken, _short(node.name) + (f".{value.port}" if len(node.outputs) > 1 else ""))
        self._names[value.node, value.port] = name
        return name


def _type(value: Value) -> TensorType:
    return TensorType(value.element_type, value.shape)


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not isinstance(value, Value)}


def _short(name: str) -> str:
    """Return the layer, the module and the operator of a name: ``/model/layers.3/attn/Add`` is ``L3.attn.Add``."""
    parts = [part for part in re.split(r"[/.]", name) if part and ":" not in part] or [name.rpartition(":")[2]]
    numbers = [part for part in parts[:-1] if part.isdecimal()]
    tail = parts[-1:] if len(parts) > 1 and parts[-2].isdecimal() else parts[-2:]
    layer = [f"L{numbers[0]}"] if numbers else []
    return re.sub(r"[^\w+-]+", ".", ".".join([*layer, *tail])) or "value"
