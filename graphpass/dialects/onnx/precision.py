"""Convert the computation of an ONNX model from f16 or bf16 to f32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import onnx
from onnx import helper, numpy_helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.tensors import Holder, element_code, graphs, is_small_inline
from graphpass.dialects.onnx.walk import bodies
from graphpass.errors import UnsupportedError
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.ir.rewriter import claim_name
from graphpass.ir.values import HALVES

_BRAIN = frozenset({"bf16"})

_FLOAT = onnx.TensorProto.FLOAT

#: Attributes that determine the type of an output.
_TYPES = frozenset({"dtype", "output_dtype", "to"})

#: Largest number of elements of a constant that is converted to f32; a Cast follows larger constants.
_FEW_ELEMENTS = 16


def first_in_bf16(model: Model) -> Node | None:
    """Return the first node with an output in bf16, except weights; ``None`` without one."""
    return _first_in(model, _BRAIN) if isinstance(model, OnnxModel) else None


def _first_in(model: OnnxModel, halves: Collection[str]) -> Node | None:
    nodes = (node for node in inlined(model).graph.nodes if node.op != "Constant")
    return next((node for node in nodes if any(value.element_type in halves for value in node.outputs)), None)


def in_f32(model: Model) -> Model:
    """Return ``model`` with f32 in place of f16 and bf16; IR is returned unchanged.

    Raises:
        UnsupportedError: GP327, an operator returns f16 or bf16 for any type of its inputs.
    """
    return _without(model, HALVES)


def is_in_f16(model: Model) -> bool:
    """Return whether an ONNX model has values in f16 besides weights."""
    return isinstance(model, OnnxModel) and _first_in(model, HALVES - _BRAIN) is not None


def without_bf16(model: Model) -> Model:
    """Return ``model`` with f32 in place of bf16; IR is returned unchanged.

    ONNX Runtime (1.32) has no products in bf16 on the CPU. The values of weights are unchanged.

    Raises:
        UnsupportedError: GP327, an operator returns bf16 for any type of its inputs.
    """
    return _without(model, _BRAIN)


def _without(model: Model, halves: Collection[str]) -> Model:
    if not isinstance(model, OnnxModel) or _first_in(model, halves) is None:
        return model
    copy = model.clone()
    _promote(copy, halves)
    return copy


def promote(model: OnnxModel) -> Mapping[str, int]:
    """Convert a model and its bodies to f32 in place; see the pass `change-precision`.

    Returns:
        Counts of changed operators, constants and weights, and of removed casts; empty if nothing changed.

    Raises:
        UnsupportedError: GP327, an operator returns f16 or bf16 for any type of its inputs.
    """
    return {} if _first_in(model, HALVES) is None else _promote(model, HALVES)


def _promote(model: OnnxModel, halves: Collection[str]) -> Mapping[str, int]:
    promotion = _Promotion(model.proto, frozenset(map(element_code, halves)))
    for graph in list(graphs(model.proto)):
        promotion.widen(graph)
    model.mark_edited()
    if (node := _first_in(model, halves)) is not None:
        hint = "keep the model in its type: leave change-precision out of the pipeline"
        raise UnsupportedError("GP327", f"{node.called} returns f16 or bf16 for any type of its inputs", hint)
    promotion.counts["converts gone"] = _bypass_casts(model)
    return {name: count for name, count in promotion.counts.items() if count}


class _Promotion:
    """Edits a model graph by graph; weights keep bytes, and names unless they are outputs."""

    def __init__(self, proto: onnx.ModelProto, codes: Collection[int]) -> None:
        self.counts: Counter[str] = Counter()
        self._codes = codes
        self._names = {name for graph in graphs(proto) for node in graph.node for name in (node.name, *node.output)}
        self._names |= {tensor.name for graph in graphs(proto) for tensor in getattr(graph, "initializer", ())}

    def widen(self, graph: Holder) -> None:
        """Convert a graph, body or function to f32."""
        initializers = graph.initializer if isinstance(graph, onnx.GraphProto) else ()
        infos = (*graph.input, *graph.output, *graph.value_info) if isinstance(graph, onnx.GraphProto) else ()
        ports = {info.name for info in graph.output} if isinstance(graph, onnx.GraphProto) else set(graph.output)
        read_as: dict[str, str] = {}
        casts: list[tuple[int, onnx.NodeProto]] = []

        def cast(index: int, name: str) -> str:
            made = claim_name(self._names, f"{name}/f32" if name not in ports else f"{name}/stored")
            stored, wide = (made, name) if name in ports else (name, made)
            read_as[name] = wide
            casts.append((index, helper.make_node("Cast", [stored], [wide], made, to=_FLOAT)))
            return stored

        for tensor in initializers:
            if self._is_weight(tensor):
                tensor.name = cast(0, tensor.name)
        for index, node in enumerate(graph.node, start=1):
            for attribute in node.attribute:
                if attribute.HasField("t") and self._is_weight(attribute.t):
                    node.output[0] = cast(index, node.output[0])
                elif attribute.name in _TYPES and attribute.i in self._codes and node.op_type != "BitCast":
                    attribute.i = _FLOAT
                    self.counts["operators"] += 1
        stored = {made.input[0] for _, made in casts}
        for info in infos:
            if info.type.tensor_type.elem_type in self._codes and info.name not in stored:
                info.type.tensor_type.elem_type = _FLOAT
        for node in _nodes(graph):
            node.input[:] = [read_as.get(name, name) for name in node.input]
        for index, made in reversed(casts):
            graph.node.insert(index, made)
        self.counts["weights"] += len(casts)

    def _is_weight(self, tensor: onnx.TensorProto) -> bool:
        """Return whether ``tensor`` requires a Cast; convert it here if it is small."""
        if tensor.data_type not in self._codes:
            return False
        if not is_small_inline(tensor, _FEW_ELEMENTS):
            return True
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float32"), tensor.name))
        self.counts["constants"] += 1
        return False


def _nodes(graph: Holder) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its bodies."""
    pending: list[Holder] = [graph]
    while pending:
        for node in pending.pop().node:
            yield node
            pending += bodies(node).values()


def _bypass_casts(model: OnnxModel) -> int:
    """Remove casts between equal types.

    Returns:
        The number of removed casts.
    """
    rewriter = model.rewriter()
    needless = [
        node for node in model.graph.of_op("Convert") if node.source().element_type == node.outputs[0].element_type
    ]
    for node in needless:
        rewriter.replace(node.outputs[0], rewriter.handle(node.source()))
    rewriter.finish()
    return len(needless)
