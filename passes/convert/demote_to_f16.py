"""The pass `demote-to-f16`."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field

from graphpass.analysis.caches.cross import filled_caches
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.half_precision import HalfPrecision, HalfRules, find_half_precision
from graphpass.dialects.onnx.half_ports import half_ports
from graphpass.dialects.onnx.half_weights import HalfWeights
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.tensors import element_code
from graphpass.dialects.onnx.walk import opset_of
from graphpass.dialects.rounding import LARGEST_HALF
from graphpass.engine.passes import Done, Pass
from graphpass.errors import UnsupportedError
from graphpass.ir.graph import Node, Use, Value
from graphpass.ir.operators import EXTREMA, SHAPE_READERS
from graphpass.ir.rewriter import Handle
from graphpass.ir.values import is_scalar

#: Bound or mask numbers, so that a bound beyond f16's largest number can be that number.
_BOUNDING = EXTREMA | {"Clamp", "Clip", "Select"}

_FLOATS = frozenset({"f16", "f32"})


@dataclass(frozen=True)
class DemoteToF16(Pass[OnnxModel]):
    """Compute hidden states in f16, and keep weights and caches in it.

    In f32 stay angles, masks and biases, which are rounded once they are computed; softmax with the scores that it
    reads; decomposed norms with their reductions; states of recurrences; operators that have no f16; and all that the
    model itself converts to f32. Fused norms and attention sum in f32 inside. Biases are cut to the range of f16 first,
    so that rows that are masked whole stay finite. Casts stand at these borders, one for each tensor.

    Past and present keys, values and windows of columns become f16; other inputs and outputs, logits among them, keep
    their type. Each weight is read and rounded once, a piece at a time, and equal ones are stored once; those of data
    files go to a new one. There is no bf16: ONNX Runtime (1.32) has no products in it on the CPU, so that nothing here
    could prove such a model.

    Options:
        cross: Let caches of cross attention be f16 as well, those that a decoder reads and those that an encoder fills:
            both have to be demoted so.

    Shapes:
        any

    Before:
        MatMul(x (f32), weight (f32)) -> Softmax -> y (f32)
    After:
        MatMul(x (f16), weight (f16)) -> Cast(f32) -> Softmax -> Cast(f16) -> y (f16)

    Raises:
        ReadError: GP105, a weight's data is missing.
        UnsupportedError: GP340, the model is of an opset before 13; GP398, a number of a weight is beyond f16.
        WriteError: GP501, the folder of temporary files has no room for the weights.
    """

    name = "demote-to-f16"
    dialect = "onnx"

    cross: bool = False

    def run(self, model: OnnxModel) -> Done:
        graph, inventory = model.graph, analyze_caches(model)
        opset = opset_of(model.proto)
        carried = [cache for cache in inventory.of_kind("kv", "linear") if cache.write is not None]
        narrow = [cache for cache in carried if cache.role != "recurrent"]
        read = [*narrow, *(inventory.of_kind("cross") if self.cross else ())]
        filled = [result.name for result in filled_caches(model)] if self.cross else []
        rules = HalfRules(
            lambda node: half_ports(node, opset).inputs,
            lambda node: half_ports(node, opset).outputs,
            frozenset(cache.read for cache in read),
            frozenset(str(cache.write) for cache in carried if cache.role == "recurrent"),
        )
        rewriter = model.rewriter()
        edit = _Demotion(rewriter, rules, find_half_precision(graph, rules), HalfWeights(model.path))
        edit.run(frozenset([*(str(cache.write) for cache in narrow), *filled]))
        if edit.weights.file is not None:
            model.scratch += (edit.weights.file,)
        rewriter.finish()
        kept = sorted({graph.nodes[index].op for index in edit.found.wide})
        notes = [f"f32 stays in {', '.join(kept)}"] if kept else []
        demoted = sum(graph.parameters[cache.read] in edit.found.values for cache in read)
        notes += [f"{demoted} caches go in and come out in f16, other inputs and outputs as before"] if demoted else []
        return Done(edit.counts | {"caches demoted": demoted + len(filled)}, tuple(notes))


@dataclass
class _Demotion:
    rewriter: OnnxRewriter
    rules: HalfRules
    found: HalfPrecision
    weights: HalfWeights
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("operators demoted", "weights rounded", "casts added"), 0)
    )
    _casts: dict[tuple[Value, str], Handle] = field(default_factory=dict)
    _rounded: dict[Hashable, Handle] = field(default_factory=dict)
    _bypassed: set[Value] = field(default_factory=set)
    _kept: list[Node] = field(default_factory=list)

    def run(self, presents: frozenset[str]) -> None:
        """Edit the graph; outputs named in ``presents`` become f16."""
        graph = self.rewriter.graph
        for node in graph.nodes:
            if node.op == "Result":
                self._output(node, demoted=node.name in presents)
            elif node.op == "Constant":
                self._constant(node)
            elif node.op == "Convert" and self._type(node.source()) == self._type(node.outputs[0]) in _FLOATS:
                self.rewriter.replace(node.outputs[0], self.rewriter.handle(node.source()))
                self._bypassed.add(node.outputs[0])
            elif node.op not in SHAPE_READERS | {"Convert"}:
                self._inputs(node)
        self.weights.move_rest(self.rewriter, self._kept)
        for node in graph.nodes:
            if node.index in self.found.nodes:
                self.counts["operators demoted"] += any(value in self.found.values for value in node.outputs)
                if node.op == "Convert":
                    self.rewriter.node(node).attrs["to"] = element_code("f16")
        for value in self.found.values - self._bypassed:
            self.rewriter.declare_type(value, "f16")
        for node in graph.of_op("Result"):
            if node.name in presents and node.source().element_type == "f32":
                self.rewriter.declare_type(node, "f16")
        self.weights.finish()

    def _type(self, value: Value) -> str:
        return "f16" if value in self.found.values else value.element_type

    def _cast(self, value: Value, wanted: str) -> Handle:
        """Return ``value`` in another type; one cast serves all users."""
        maker = self.rewriter.graph.producer(value)
        if maker.op == "Convert" and self._type(maker.source()) == wanted:
            return self.rewriter.handle(maker.source())
        if (value, wanted) not in self._casts:
            self.counts["casts added"] += 1
            write = self.rewriter.under(value.name)
            source: Value | Handle = value
            if wanted == "f16" and value in self.found.beyond:
                ends = (write.number(end, "f32", "end") for end in (-LARGEST_HALF, LARGEST_HALF))
                source = write.op("Clip", value, *ends)
            self._casts[value, wanted] = write.op("Convert", source, to=wanted, label=wanted)
        return self._casts[value, wanted]

    def _output(self, node: Node, *, demoted: bool) -> None:
        value = node.source()
        wanted = "f16" if demoted else "f32"
        if value.element_type == "f32" and self._type(value) != wanted:
            self.rewriter.redirect(node, 0, self._cast(value, wanted))

    def _inputs(self, node: Node) -> None:
        halves = self.rules.inputs(node) if node.index in self.found.nodes else ()
        for port, value in enumerate(node.inputs):
            if value is None or value.element_type != "f32" or self.rewriter.graph.producer(value).op == "Constant":
                continue
            wanted = "f16" if port in halves else "f32"
            if self._type(value) != wanted:
                self.rewriter.redirect(node, port, self._cast(value, wanted))

    def _constant(self, node: Node) -> None:
        """Round a constant for operators in f16; others read it as it was."""
        value = node.outputs[0]
        uses = self.rewriter.graph.uses(value) if value.element_type == "f32" else ()
        halved = [use for use in uses if use.node.index in self.found.nodes and use.port in self.rules.inputs(use.node)]
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
            raise UnsupportedError(
                "GP398",
                f"weight {value.name} of {uses[0].node.called} has numbers beyond f16's largest, {LARGEST_HALF:.0f}",
                "leave the model in f32",
            )
        places = tuple(entry.value for entry in tensor.external_data)
        key = tuple(tensor.dims), hashlib.sha256(tensor.raw_data).digest(), places
        if key not in self._rounded:
            self._rounded[key] = self.weights.declare(self.rewriter, tensor, f"{value.name}/f16")
        return self._rounded[key]
