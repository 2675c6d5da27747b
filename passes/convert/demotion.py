"""Demote ONNX models to f16 and bf16, for `change-precision`."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field

from graphpass.analysis.caches.encoders import filled_caches
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.half_precision import HalfPrecision, HalfRules, find_half_precision
from graphpass.dialects.onnx.half_ports import half_ports
from graphpass.dialects.onnx.half_weights import HalfWeights
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.tensors import element_code
from graphpass.dialects.onnx.walk import opset_of
from graphpass.dialects.rounding import LARGEST, Half
from graphpass.engine.passes import Done
from graphpass.errors import UnsupportedError
from graphpass.ir.graph import Node, Use, Value
from graphpass.ir.operators import EXTREMA, SHAPE_READERS
from graphpass.ir.values import is_scalar
from graphpass.ir.writer import Handle

#: Operators that clip or mask, whose scalar operands may be clipped to the range of the type.
_BOUNDING = EXTREMA | {"Clamp", "Clip", "Select"}


def demote(model: OnnxModel, half: Half, *, cross: bool) -> Done:
    """Convert hidden states, weights and caches to 16 bits; see `ChangePrecision`.

    Args:
        model: The model, which is edited in place.
        half: The type.
        cross: Whether to convert caches of cross attention, too.

    Returns:
        Counts of changed nodes, weights and caches; a note lists the operators that stay in f32.
    """
    graph, inventory = model.graph, analyze_caches(model)
    opset = opset_of(model.proto)
    carried = [cache for cache in inventory.of_kind("kv", "linear") if cache.write is not None]
    narrow = [cache for cache in carried if cache.role != "recurrent"]
    read = [*narrow, *(inventory.of_kind("cross") if cross else ())]
    filled = [result.name for result in filled_caches(model)] if cross else []
    rules = HalfRules(
        lambda node: half_ports(node, opset, half).inputs,
        lambda node: half_ports(node, opset, half).outputs,
        frozenset(cache.read for cache in read),
        frozenset(str(cache.write) for cache in carried if cache.role == "recurrent"),
        LARGEST[half],
    )
    rewriter = model.rewriter()
    weights = HalfWeights(model.path, half)
    edit = _Edit(half, rewriter, rules, find_half_precision(graph, rules), weights)
    edit.run(frozenset([*(str(cache.write) for cache in narrow), *filled]))
    if edit.weights.file is not None:
        model.scratch += (edit.weights.file,)
    rewriter.finish()
    kept = sorted({graph.nodes[index].op for index in edit.precision.wide})
    notes = [f"operators that stay in f32: {', '.join(kept)}"] if kept else []
    demoted = sum(graph.parameters[cache.read] in edit.precision.values for cache in read)
    if demoted:
        notes.append(f"{demoted} caches are {half}; other inputs and outputs keep their types")
    return Done(edit.counts | {"caches demoted": demoted + len(filled)}, tuple(notes))


@dataclass
class _Edit:
    half: Half
    rewriter: OnnxRewriter
    rules: HalfRules
    precision: HalfPrecision
    weights: HalfWeights
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("operators demoted", "weights rounded", "casts added"), 0)
    )
    _casts: dict[tuple[Value, str], Handle] = field(default_factory=dict)
    _rounded: dict[Hashable, Handle] = field(default_factory=dict)
    _bypassed: set[Value] = field(default_factory=set)
    _kept: list[Node] = field(default_factory=list)

    def run(self, presents: frozenset[str]) -> None:
        """Edit the graph; outputs in ``presents`` get the 16-bit type."""
        graph = self.rewriter.graph
        for node in graph.nodes:
            if node.op == "Result":
                self._output(node, demoted=node.name in presents)
            elif node.op == "Constant":
                self._constant(node)
            elif node.op == "Convert" and self._is_needless(node):
                self.rewriter.replace(node.outputs[0], self.rewriter.handle(node.source()))
                self._bypassed.add(node.outputs[0])
            elif node.op not in SHAPE_READERS | {"Convert"}:
                self._inputs(node)
        self.weights.move_rest(self.rewriter, self._kept)
        for node in graph.nodes:
            if node.index in self.precision.nodes:
                self.counts["operators demoted"] += any(value in self.precision.values for value in node.outputs)
                if node.op == "Convert":
                    self.rewriter.node(node).attrs["to"] = element_code(self.half)
        for value in self.precision.values - self._bypassed:
            self.rewriter.declare_type(value, self.half)
        for node in graph.of_op("Result"):
            if node.name in presents and node.source().element_type == "f32":
                self.rewriter.declare_type(node, self.half)
        self.weights.finish()

    def _is_needless(self, cast: Node) -> bool:
        kind = self._type(cast.outputs[0])
        return kind in {self.half, "f32"} and self._type(cast.source()) == kind

    def _type(self, value: Value) -> str:
        return self.half if value in self.precision.values else value.element_type

    def _cast(self, value: Value, wanted: str) -> Handle:
        """Return ``value`` in type ``wanted``, by one Cast for all users."""
        maker = self.rewriter.graph.producer(value)
        if maker.op == "Convert" and self._type(maker.source()) == wanted:
            return self.rewriter.handle(maker.source())
        if (value, wanted) not in self._casts:
            self.counts["casts added"] += 1
            write = self.rewriter.under(value.name)
            source: Value | Handle = value
            if wanted == self.half and value in self.precision.beyond:
                ends = (write.number(end, "f32", "end") for end in (-LARGEST[self.half], LARGEST[self.half]))
                source = write.op("Clip", value, *ends)
            self._casts[value, wanted] = write.op("Convert", source, to=wanted, label=wanted)
        return self._casts[value, wanted]

    def _output(self, node: Node, *, demoted: bool) -> None:
        value = node.source()
        wanted = self.half if demoted else "f32"
        if value.element_type == "f32" and self._type(value) != wanted:
            self.rewriter.redirect(node, 0, self._cast(value, wanted))

    def _inputs(self, node: Node) -> None:
        halves = self.rules.inputs(node) if node.index in self.precision.nodes else ()
        for port, value in enumerate(node.inputs):
            if value is None or value.element_type != "f32" or self.rewriter.graph.producer(value).op == "Constant":
                continue
            wanted = self.half if port in halves else "f32"
            if self._type(value) != wanted:
                self.rewriter.redirect(node, port, self._cast(value, wanted))

    def _constant(self, node: Node) -> None:
        """Round a constant for operators in 16 bits; other users read the original."""
        value = node.outputs[0]
        uses = self.rewriter.graph.uses(value) if value.element_type == "f32" else ()
        halved = [
            use for use in uses if use.node.index in self.precision.nodes and use.port in self.rules.inputs(use.node)
        ]
        if len(halved) < len(uses) or value.element_type != "f32":
            self._kept.append(node)
        if not halved:
            return
        self.counts["weights rounded"] += 1
        made = self._round(node, halved)
        if len(halved) == len(uses):
            self.rewriter.replace(value, made)
            return
        for use in halved:
            self.rewriter.redirect(use.node, use.port, made)

    def _round(self, node: Node, uses: list[Use]) -> Handle:
        value = node.outputs[0]
        cut = is_scalar(value) and all(use.node.op in _BOUNDING for use in uses)
        tensor, overflows = self.weights.rounded(node.native, cut=cut)
        if overflows:
            largest = LARGEST[self.half]
            raise UnsupportedError(
                "GP398",
                f"weight {value.name} of {uses[0].node.called} exceeds the range of {self.half}, {largest:.6g}",
                "leave the model in f32",
            )
        location = tuple(entry.value for entry in tensor.external_data)
        key = tuple(tensor.dims), hashlib.sha256(tensor.raw_data).digest(), location
        if key not in self._rounded:
            self._rounded[key] = self.weights.declare(self.rewriter, tensor, f"{value.name}/{self.half}")
        return self._rounded[key]
