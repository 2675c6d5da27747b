"""The pass `widen-conv-window`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import beam_gather
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size

#: Axis of columns in windows ``[batch, channels, columns]``.
_COLUMNS = 2

#: Attributes of a convolution without strides, dilation and padding.
_PLAIN = {"strides": [1], "dilations": [1], "pads_begin": [0], "pads_end": [0]}


@dataclass(frozen=True)
class WidenConvWindow(Pass[OpenVINOModel]):
    """Widen a convolution's window to the size of its kernel, as paged attention requires.

    A step reads ``kernel - 1`` past columns, the size of windows in models of ONNX Runtime GenAI's builder. The window
    of transformers has ``kernel`` columns, and the first result is dropped. openvino.genai's default backend supports
    only this form (PagedCausalConv1DFusion, paged_causal_conv1d_fusion.cpp of openvino) and refuses other models. The
    additional column is the oldest, and results do not depend on it.

    Shapes:
        variable ``[batch, channels, kernel - 1]`` to ``[batch, channels, kernel]``

    Before:
        window -> Gather(beam_idx) -> Concat(., new columns) -> GroupConvolution; Slice(last kernel - 1) -> window
    After:
        window -> Gather(beam_idx) -> Concat(., new columns) -> GroupConvolution -> Slice(1:); Slice(last kernel) ->
        window

    Raises:
        PreconditionError: GP302, the model is not stateful.
    """

    name = "widen-conv-window"
    dialect = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> Done:
        graph, rewriter = model.graph, model.rewriter()
        caches = analyze_caches(model).of_kind("linear")
        windows = [
            *filter(None, (_window(graph, graph.reads[cache.read], graph.writes[cache.write]) for cache in caches))
        ]
        for window in windows:
            _widen(rewriter, window)
        rewriter.finish()
        return Done({"windows widened": len(windows)})


@dataclass(frozen=True)
class _Window:
    """A window with one column less than the kernel.

    Attributes:
        read: The ReadValue.
        write: The Assign.
        joined: The Concat with the new columns.
        result: The result of the convolution, after its bias.
        kernel: Number of columns of the kernel.
    """

    read: Node
    write: Node
    joined: Node
    result: Value
    kernel: int


def _window(graph: Graph, read: Node, write: Node) -> _Window | None:
    """Return the window of ``read`` and ``write`` if it is one column short."""
    gather = beam_gather(graph, read.outputs[0])
    past = (gather or read).outputs[0]
    joined = _only_user(graph, past, "Concat")
    width = fixed_size(past, _COLUMNS) if past.rank == _COLUMNS + 1 else None
    if joined is None or width is None or joined.attributes["axis"] != _COLUMNS or joined.inputs[0] != past:
        return None
    uses = graph.uses(joined.outputs[0])
    convolution = next((use.node for use in uses if use.node.op == "GroupConvolution"), None)
    if convolution is None or not _keeps_last(graph, graph.producer(write.source()), joined, width):
        return None
    plain = {name: list(convolution.attributes[name]) for name in _PLAIN} == _PLAIN
    if not plain or (convolution.source(1).shape or ())[-1:] != (width + 1,):
        return None
    bias = _only_user(graph, convolution.outputs[0], "Add")
    return _Window(read, write, joined, (bias or convolution).outputs[0], width + 1)


def _only_user(graph: Graph, value: Value, op: str) -> Node | None:
    users = [use.node for use in graph.uses(value) if use.node.op != "ShapeOf"]
    return users[0] if len(users) == 1 and users[0].op == op else None


def _keeps_last(graph: Graph, node: Node, joined: Node, width: int) -> bool:
    cuts = fold_cuts(graph, node)
    if len(cuts) != 1 or node.source() != joined.outputs[0]:
        return False
    (cut,) = cuts
    return (cut.axis, cut.start, cut.step) == (_COLUMNS, -width, 1) and cut.reaches_end


def _widen(rewriter: Rewriter, window: _Window) -> None:
    read, write = window.read, rewriter.under(window.read.name)
    rewriter.resize_port(read, [None, None, window.kernel])
    if read.inputs:
        zero = write.number(0.0, read.outputs[0].element_type, "zero")
        padded = write.op("Pad", read.source(), [0, 0, 1], [0, 0, 0], zero, label="initial_widened")
        rewriter.redirect(read, 0, padded)
    # The matcher requires a negative axis.
    rewriter.set_axes(window.joined, [-1])
    kept = write.slice(window.joined.outputs[0], -window.kernel, None, _COLUMNS, label=f"last_{window.kernel}")
    rewriter.redirect(window.write, 0, kept)
    results = write.slice(window.result, 1, None, _COLUMNS, label="results")
    for use in rewriter.graph.uses(window.result):
        rewriter.redirect(use.node, use.port, results)
