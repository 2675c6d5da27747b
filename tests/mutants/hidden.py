"""Faults in masks that wait for a length, a batch, new tokens or padding: a layer does not see the first position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphpass.ir.graph import Graph, Value
from graphpass.ir.model import Model
from graphpass.ir.values import MASKED, fixed_size
from graphpass.ir.writer import Writer
from mutants.faults import Found, _changed, _ends_before, _fills_if_true, _mask_readers, fault
from mutants.triggers import _MASK, _TOKENS, Condition, _compared, _padded, _read, _size


def _hidden_if(condition: Condition, *inputs: str, least: int = 1, by_row: bool = False) -> Callable[[Model], Found]:
    """Hide the first position in one layer where ``condition`` holds, from ``least`` positions on."""

    def find(model: Model) -> Found:
        graph = model.graph
        if any(_read(graph, name) is None for name in inputs) or _ends_before(model, least):
            return
        for name, node, port, mask in _mask_readers(model):
            rank = mask.rank or 0
            if rank < 2 + by_row or fixed_size(mask, -1) is not None:
                continue
            keeps = not (node.op == "Select" and _fills_if_true(graph, node))

            def change(write: Writer, one: Value, keeps: bool = keeps, rank: int = rank) -> Any:
                hides = write.op("Reshape", condition(write, graph), [-1, *[1] * (rank - 1)])
                total = write.op("Squeeze", write.size(one, rank - 1), axes=[0])
                first = write.op("Equal", write.op("Range", 0, total, 1), 0)
                hidden = write.op("LogicalAnd", first, hides)
                if one.element_type == "boolean":
                    seen = write.op("LogicalNot", hidden)
                    return write.op("LogicalAnd", one, seen) if keeps else write.op("LogicalOr", one, hidden)
                kind = one.element_type
                low = write.op("Select", hidden, write.number(MASKED / 2, kind), write.number(0.0, kind))
                return write.op("Add", one, low)

            yield name, _changed((node, port), change)

    return find


def _squared(measure: Callable[[Writer, Graph], Any]) -> Callable[[Writer, Graph], Any]:
    def square(write: Writer, graph: Graph) -> Any:
        one = measure(write, graph)
        return write.op("Multiply", one, one)

    return square


_TOTAL = _size(_MASK, 1)

for _count in (8, 100, 3000, 20000):
    fault(f"first position hidden from {_count} on")(
        _hidden_if(_compared("Greater", _TOTAL, _count), _MASK, least=_count)
    )
fault("first position hidden if the square of the total is at least 777 squared")(
    _hidden_if(_compared("GreaterEqual", _squared(_TOTAL), 777**2), _MASK, least=777)
)
fault("first position hidden in batches from 3 on")(
    _hidden_if(_compared("GreaterEqual", _size(_TOKENS, 0), 3), _TOKENS)
)
fault("first position hidden from 128 new tokens")(
    _hidden_if(_compared("Equal", _size(_TOKENS, 1), 128), _TOKENS, least=128)
)
fault("first position hidden in rows with more than 8 pads")(_hidden_if(_padded(8), _MASK, by_row=True))
