"""The pass `to-openvino`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.tensors import graphs
from graphpass.dialects.onnx.walk import ONNX_DOMAINS
from graphpass.dialects.openvino.frontend import lowering_hint
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.names import all_ops, stabilise_names
from graphpass.engine.conditions import OPENVINO
from graphpass.engine.passes import Done, Pass
from graphpass.errors import UnsupportedError
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, MOVES, REDUCTIONS
from graphpass.ir.values import REALS
from graphpass.passes.convert.merged_quantizers import merge_quantizers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import openvino


#: Largest number of results for which a stable TopK is as fast as an unstable one. It compares each result with all
#: elements: for 2048 of 4096 elements it takes 3,300 ms instead of 44 (256 rows, CPU plugin of 2026.4.1).
_FEW = 16

#: A node in messages of the frontend.
_PLACE = r"ONNX node '<Node\((\w+)\): ([^>]*)>'"


@dataclass(frozen=True)
class ToOpenVINO(Pass[OnnxModel]):
    """Convert an ONNX model to OpenVINO IR, by OpenVINO's frontend.

    Names of inputs, outputs and nodes are unchanged. Weights are unchanged: external data stays in the memory-mapped
    file. Symbolic dimensions become dynamic, since IR has no names for dimensions.

    Reductions to ``[batch, channels]`` are written in a form that the CPU plugin computes correctly for more than one
    row. A TopK of at most 16 results selects the first of equal elements, as ONNX requires. QuantizeLinear and
    DequantizeLinear become one FakeQuantize.

    Before:
        an ONNX graph
    After:
        the same graph in OpenVINO operators, inputs and outputs with the same names, types and shapes

    Raises:
        UnsupportedError: GP311, the frontend does not support some operators; GP312, the frontend fails otherwise.
    """

    name = "to-openvino"
    dialect = "onnx"
    ensures = (OPENVINO,)

    def run(self, model: OnnxModel) -> Done:
        import openvino

        with model.on_disk() as file:
            try:
                converted = openvino.Core().read_model(str(file))
            except RuntimeError as error:
                raise _explained(model, str(error)) from error
        names = _settled_names(model, converted)
        result = OpenVINOModel(converted, model.path, names)
        result.mark_edited()  # the model is not stored in a file
        keep_reduced_axes(result)
        keep_order_of_ties(result)
        merge_quantizers(result)
        if model.declarations:
            result.declare(model.declarations)
        result.weight_files = model.weight_files
        return Done({"operators": len(converted.get_ops())}, model=result)


def _settled_names(model: OnnxModel, converted: openvino.Model) -> set[str]:
    """Return the names of ``converted`` that come from ONNX; rename nodes with generated names.

    Names such as ``Add_5`` are ambiguous: older exports use them, and OpenVINO generates them for unnamed nodes.
    """
    names = {tensor.name for tensor in model.proto.graph.initializer}
    makers: dict[str, str] = {}
    for node in _nodes(model.proto):
        names |= {node.name, *node.output}
        makers |= {output: node.name for output in node.output if output and node.name}
    for op in all_ops(converted):
        for output in op.outputs():
            if "" in output.get_names():
                # Files do not store the empty name of an omitted output.
                output.set_names(output.get_names() - {""})
            # OpenVINO appends a number to a name that it has already generated in this process.
            stem, _, number = op.get_friendly_name().rpartition("_")
            if number.isdecimal() and stem in {makers.get(tensor) for tensor in output.get_names()}:
                op.set_friendly_name(stem)
    names &= {op.get_friendly_name() for op in all_ops(converted)}
    # Only nodes that correspond to a node of ONNX have tensor names.
    originals = {op.get_name() for op in all_ops(converted) if any(output.get_names() for output in op.outputs())}
    stabilise_names(converted, names, originals)
    return names


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in graphs(proto):
        if not isinstance(graph, onnx.FunctionProto):
            yield from graph.node


def _explained(model: OnnxModel, message: str) -> UnsupportedError:
    listed = re.search(r"No conversion rule found for operations: (.*)", message)
    if listed is None:
        place = re.search(_PLACE, message)
        hint = lowering_hint([] if place is None else [place[1]])
        return UnsupportedError("GP312", f"OpenVINO's ONNX frontend fails{_complaint(message)}", hint)
    # The frontend appends the opset version to ONNX's operators: "Zork-18".
    names = [name.strip() for name in listed[1].split(",")]
    missing = [name if "." in name else re.sub(r"-\d+$", "", name) for name in names]
    reasons: dict[str, list[str]] = {name: [] for name in missing}
    for node in _nodes(model.proto):
        name = node.op_type if node.domain in ONNX_DOMAINS else f"{node.domain}.{node.op_type}"
        if name in reasons:
            reasons[name].append(node.name or node.output[0])
    described = [_described(name, nodes) for name, nodes in reasons.items()]
    return UnsupportedError(
        "GP311",
        f"OpenVINO's ONNX frontend has no rule for {'; '.join(described)}",
        lowering_hint(name.rpartition(".")[2] for name in missing)
        or "replace these operators before to-openvino, or keep the model in ONNX",
    )


def _described(name: str, nodes: list[str]) -> str:
    called = name if "." in name else f"ai.onnx.{name}"
    more = ", ..." if len(nodes) > 3 else ""
    return f"{called} ({len(nodes)}: {', '.join(nodes[:3])}{more})" if nodes else called


def _complaint(message: str) -> str:
    place = re.search(_PLACE, message)
    log = message.split("\n\nSummary:")[0].split("with a message:")[-1]
    lines = [line.strip() for line in log.splitlines()]
    # Lines with locations in OpenVINO's sources precede the reason.
    reasons = [line for line in lines if line and "src/" not in line and not line.startswith("While validating")]
    where = f" at {place[1]} {place[2]}" if place is not None else ""
    return f"{where}: {' '.join(reasons)[:400] or 'no reason is given'}"


def keep_reduced_axes(model: Model) -> None:
    """Write reductions of ``[batch, channels, n]`` to ``[batch, channels]`` with kept axes and a Squeeze.

    The CPU plugin fuses a reduction with a following Add or Multiply by channel. With more than one row it applies the
    operand of one channel to all channels: observed with 2026.4.1, on the bias of a convolution that was exported as a
    sum of products. (openvino issue 23616 is the same with one row, fixed in
    ``src/plugins/intel_cpu/src/nodes/reduce.cpp`` by pull request 23970.) The plugin does not fuse across a Squeeze.
    """
    rewriter = model.rewriter()
    for node in rewriter.graph.of_op(*REDUCTIONS):
        if _is_by_channel(node):
            write = rewriter.under(node.name)
            kept = write.op(node.op, *node.inputs, keep=True, label="kept")
            rewriter.replace(node.outputs[0], write.op("Squeeze", kept, axes=[2]))
    rewriter.finish()


def _is_by_channel(node: Node) -> bool:
    ranks = (node.source().rank, node.outputs[0].rank)
    return ranks == (3, 2) and node.outputs[0].element_type in REALS and node.attributes.get("axes") == (2,)


def keep_order_of_ties(model: OpenVINOModel) -> None:
    """Make TopK of few results stable: ties select the element with the lower index.

    ONNX requires this since opset 11; the frontend leaves the order to the plugin.
    """
    graph = model.graph
    for node in graph.of_op("TopK"):
        # OpenVINO does not support a stable TopK with sort="none".
        if node.attributes.get("sort") != "none" and _is_small(graph, node.source(1)):
            node.native.set_attribute("stable", True)


def _is_small(graph: Graph, count: Value) -> bool:
    """Return whether ``count`` is a small constant, or a Minimum with a small constant."""
    producer = graph.producer(graph.look_through(count, CASTS | MOVES))
    candidates = producer.inputs if producer.op == "Minimum" else [count]
    folded = [fold_scalar(graph, candidate) for candidate in candidates]
    return any(number is not None and number <= _FEW for number in folded)
