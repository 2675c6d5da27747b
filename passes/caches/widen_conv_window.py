"""The pass `widen-conv-window`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import beam_gather, fold, integers, named, scalar
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.slices import NO_END
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

__all__ = ["WidenConvWindow"]

#: Windows ``[batch, channels, columns]``.
_COLUMNS = 2

_LAST = 2**63 - 1


@dataclass(frozen=True)
class WidenConvWindow(Pass[OpenVINOModel]):
    """Let a convolution's window hold as many columns as its kernel, the form that paged attention takes.

    A step needs one column less, and ONNX Runtime GenAI's builder keeps no more. Transformers keeps as many as the
    kernel has and drops the first result, and openvino.genai's default backend finds that form alone
    (PagedCausalConv1DFusion, paged_causal_conv1d_fusion.cpp of openvino); without it, it refuses the model. The column
    that is added is the oldest, and no result depends on it.

    Shapes:
        variable ``[batch, channels, kernel - 1]`` to ``[batch, channels, kernel]``

    Before:
        window -> Gather(beam_idx) -> Concat(., new columns) -> GroupConvolution; Slice(last kernel - 1) -> window
    After:
        window -> Gather(beam_idx) -> Concat(., new columns) -> GroupConvolution -> Slice(1:); Slice(last kernel) ->
        window

    Raises:
        PreconditionError: GP302 the model is not stateful.
    """

    name: ClassVar[str] = "widen-conv-window"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        native = model.ov_model
        reads = {node.name: node.native for node in model.graph.of_op("ReadValue")}
        writes = {node.name: node.native for node in model.graph.of_op("Assign")}
        count = 0
        for cache in analyze_caches(model).of_kind("linear"):
            window = _window(reads[cache.read], writes[str(cache.write)])
            if window is not None:
                _widen(native, window, cache.read)
                count += 1
        if not count:
            return Unchanged()
        native.validate_nodes_and_infer_types()
        return Changed(model, {"windows widened": count})


@dataclass(frozen=True)
class _Window:
    """A window of one column less than the kernel.

    Attributes:
        read: The ReadValue.
        write: The Assign.
        joined: The Concat with the new columns.
        result: What the convolution gives, its bias included.
        kernel: Columns of the kernel.
    """

    read: openvino.Node
    write: openvino.Node
    joined: openvino.Node
    result: openvino.Node
    kernel: int


def _window(read: openvino.Node, write: openvino.Node) -> _Window | None:
    """The window that ``read`` and ``write`` keep, where it is one column short."""
    shape = read.get_output_partial_shape(0)
    past = beam_gather(read) or read
    joined = _only_reader(past, "Concat")
    if joined is None or shape.rank.is_dynamic or len(shape) != _COLUMNS + 1 or shape[_COLUMNS].is_dynamic:
        return None
    width = shape[_COLUMNS].get_length()
    if joined.get_attributes()["axis"] not in {-1, _COLUMNS} or joined.input_value(0) != past.output(0):
        return None
    kept = write.input_value(0).get_node()
    convolution = next((node for node in _readers(joined) if node.get_type_name() == "GroupConvolution"), None)
    if convolution is None or not _keeps_last(kept, joined, width) or not _is_plain(convolution, width + 1):
        return None
    bias = _only_reader(convolution, "Add")
    return _Window(read, write, joined, convolution if bias is None else bias, width + 1)


def _readers(node: openvino.Node) -> list[openvino.Node]:
    readers = [reader.get_node() for reader in node.output(0).get_target_inputs()]
    return [reader for reader in readers if reader.get_type_name() != "ShapeOf"]


def _only_reader(node: openvino.Node, kind: str) -> openvino.Node | None:
    readers = _readers(node)
    return readers[0] if len(readers) == 1 and readers[0].get_type_name() == kind else None


def _keeps_last(node: openvino.Node, joined: openvino.Node, width: int) -> bool:
    """Whether ``node`` keeps the last ``width`` columns."""
    if node.get_type_name() != "Slice" or node.get_input_size() != 5 or node.input_value(0).get_node() != joined:
        return False
    bounds = [fold(source) for source in node.input_values()[1:]]
    if any(bound is None or bound.size != 1 for bound in bounds):
        return False
    start, stop, step, axis = (int(bound.item()) for bound in bounds if bound is not None)
    return start == -width and stop >= NO_END and step == 1 and axis in {-1, _COLUMNS}


def _is_plain(convolution: openvino.Node, kernel: int) -> bool:
    """Whether ``convolution`` has a kernel of ``kernel`` columns, and steps and looks column by column."""
    given = convolution.get_attributes()
    steps = (list(given["strides"]), list(given["dilations"]), list(given["pads_begin"]), list(given["pads_end"]))
    shape = convolution.get_input_partial_shape(1)
    return steps == ([1], [1], [0], [0]) and shape[len(shape) - 1] == kernel


def _widen(native: openvino.Model, window: _Window, name: str) -> None:
    from openvino import opset13
    from openvino.op.util import VariableInfo

    read, axis = window.read, integers([_COLUMNS], f"{name}/columns")
    variable = native.get_variable_by_id(read.get_attributes()["variable_id"])
    old = variable.info
    info = VariableInfo()
    shape = old.data_shape
    shape[_COLUMNS] = window.kernel
    info.data_shape, info.data_type, info.variable_id = shape, old.data_type, old.variable_id
    variable.update(info)
    if read.get_input_size():
        zero = scalar(0.0, read.get_output_element_type(0), f"{name}/zero")
        before, behind = integers([0, 0, 1], f"{name}/before"), integers([0, 0, 0], f"{name}/behind")
        padded = opset13.pad(read.input_value(0), before, behind, "constant", zero)
        read.input(0).replace_source_output(named(padded, f"{name}/initial_widened").output(0))
    # The matcher takes an axis that is counted from the end alone.
    window.joined.set_attribute("axis", -1)
    one, stop = integers([1], f"{name}/one"), integers([_LAST], f"{name}/stop")
    start = integers([-window.kernel], f"{name}/start")
    kept = named(opset13.slice(window.joined, start, stop, one, axis), f"{name}/last_{window.kernel}")
    window.write.input(0).replace_source_output(kept.output(0))
    readers = window.result.output(0).get_target_inputs()
    results = named(opset13.slice(window.result, one, stop, one, axis), f"{name}/results")
    for reader in readers:
        reader.replace_source_output(results.output(0))
