"""Faults in attributes of operators, and in the number of iterations of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Writer
from mutants.faults import Edit, Found, _changed, fault


def _set(index: int, name: str, value: Any) -> Edit:
    """Return the edit that sets a native attribute."""

    def edit(rewriter: Rewriter, write: Writer, graph: Graph) -> None:
        node = graph.nodes[index]
        if hasattr(node.native, "set_attribute"):
            node.native.set_attribute(name, value)
        else:
            (made,) = rewriter.native(node.outputs[0]).inputs
            made.attrs[name] = value

    return edit


def _register(op: str, name: str, change: Callable[[Any, Node], Any]) -> None:
    """Register the fault that changes an attribute; ``change`` returns its new value, ``None`` to skip the node."""

    @fault(f"{name} of {op}")
    def _(model: Model) -> Found:
        for node in model.graph.of_op(op):
            value = change(native_attributes(node).get(name), node)
            if value is not None:
                yield node.name, _set(node.index, name, value)


def _flipped(old: int | None, node: Node) -> int:
    return 1 - (old or 0)


def _flipped_if_rotary(old: int | None, node: Node) -> int | None:
    return _flipped(old, node) if native_attributes(node).get("do_rotary") else None


_register("CausalConvWithState", "activation", lambda old, node: "none" if old in {"silu", "swish"} else "silu")
_register("GroupQueryAttention", "local_window_size", lambda old, node: old + 1 if old and old > 0 else 4)
_register("GroupQueryAttention", "rotary_interleaved", _flipped_if_rotary)
_register("GroupQueryAttention", "scale", lambda old, node: old * 1.001 if old else None)
_register("GroupQueryAttention", "softcap", lambda old, node: old * 1.1 if old else 5.0)
_register("GroupQueryAttention", "smooth_softmax", lambda old, node: 1 if not old and node.input(11) is None else None)
_register("LinearAttention", "scale", lambda old, node: old * 1.001 if old else None)
_register("MoE", "activation_alpha", lambda old, node: old * 1.01 if old else None)
_register("MoE", "normalize_routing_weights", _flipped)
_register("QMoE", "normalize_routing_weights", _flipped)
_register("RotaryEmbedding", "interleaved", _flipped)
_register("RotaryEmbedding", "scale", lambda old, node: 1.01)
_register("Softmax", "axis", lambda old, node: 2 if node.outputs[0].rank == 4 else None)


@fault("smallest in place of largest")
def _(model: Model) -> Found:
    for node in model.graph.of_op("TopK"):
        attributes, count = native_attributes(node), fold_scalar(model.graph, node.source(1))
        if count == fixed_size(node.source(), -1):
            continue
        name, value = ("mode", "min") if "mode" in attributes else ("largest", 0)
        yield node.name, _set(node.index, name, value)


@fault("a loop without its last iteration")
def _(model: Model) -> Found:
    for node in model.graph.of_op("Loop"):
        count = node.input(0)
        if count is not None and count.element_type in {"i32", "i64"}:

            def change(write: Writer, one: Value) -> Any:
                return write.op("Subtract", one, write.number(1, one.element_type))

            yield node.name, _changed((node, 0), change)
