"""What passes share that let a caller move and drop positions (slots) of KV caches: the past, and where it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.rewrite import NodeWriter, check_opset
from graphpass.dialects.onnx.tensors import element_code, graphs
from graphpass.dialects.openvino.rewrite import (
    TOKEN_INPUTS,
    add_input,
    beam_gather,
    has_input,
    input_length,
    integers,
    named,
    token_input,
)
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.slices import SLICES

if TYPE_CHECKING:
    import openvino

    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.cache import Cache
    from graphpass.ir.model import Model

__all__ = ["OnnxPast", "Trim", "growing_caches", "let_read", "past_length", "past_of", "reads_of", "trimmed"]

#: How a cache is cut: by a Slice from 0, or as 2026.4.1's GPU plugin wants it, which is wrong on all other devices.
Trim = Literal["slice", "begin-one"]

#: The input that tells the past's length where it does not follow from others.
PAST_LENGTH = "past_len"


def growing_caches(model: Model) -> tuple[Cache, ...]:
    """The KV caches of ``model``, each of which holds all positions in order, the newest last.

    Raises:
        PreconditionError: GP319, the model has inputs that move or cut positions.
        UnsupportedError: GP365, a cache has a fixed capacity, or keeps no more than a window.
    """
    inventory = analyze_caches(model)
    caches = inventory.of_kind("kv")
    names = {port.name for port in model.inputs}
    if taken := sorted(names & {"src_idx", "dst_idx", PAST_LENGTH}):
        raise PreconditionError("GP319", f"the model has the input {taken[0]} already")
    windowed = {
        name for block in inventory.attention if block.window_in == "state" for name in (block.key, block.value)
    }
    for cache in caches:
        axis = cache.axes.sequence
        reason = None
        if axis is None:
            reason = "it is not known which axis its positions are on"
        elif cache.shape is not None and isinstance(cache.shape[axis], int):
            reason = "its capacity is fixed: a shorter sequence is told to the model, not cut off"
        elif cache.name in windowed:
            reason = "it keeps no more than a window, so that what was dropped cannot come back"
        if reason is not None:
            raise UnsupportedError("GP365", f"positions of cache {cache.name} cannot be moved or cut: {reason}")
    return caches


def past_length(native: openvino.Model) -> openvino.Node:
    """How many positions the past is to hold, i64 [1].

    Length of the attention mask less that of the new tokens; where the model has no such inputs, a new input
    ``past_len``.
    """
    from openvino import opset8

    tokens = token_input(native)
    if tokens is None or not has_input(native, "attention_mask"):
        return add_input(native, PAST_LENGTH, "i64", [1])
    lengths = [input_length(native, name, f"past_length/{name}") for name in ("attention_mask", tokens)]
    return named(opset8.subtract(*lengths), "past_length")


def trimmed(past: openvino.Node, length: openvino.Node, axis: int, form: Trim, name: str) -> openvino.Node:
    """The first ``length`` (i64 [1]) positions of ``past`` along ``axis``.

    ``begin-one`` is what GPU plugins of 2026.4 fuse: a StridedSlice that begins at 1 and, there, drops nothing.
    """
    import numpy
    from openvino import opset8, opset13

    if form == "slice":
        bounds = [integers([0], f"{name}/start"), length, integers([1], f"{name}/step")]
        return named(opset8.slice(past, *bounds, integers([axis], f"{name}/axis")), name)
    # kv_cache_fusion.cpp of 2026.4.1 wants a constant of ones for where it begins, and drops nothing there. It takes
    # the length from the ends by the Concat's axis as that is written, so that -2 would find another axis's end.
    free = numpy.array([1] * axis + [0], numpy.int64)
    cut = opset13.strided_slice(
        past,
        integers([1] * (axis + 1), f"{name}/start"),
        named(opset13.concat([length] * (axis + 1), 0), f"{name}/end"),
        integers([1] * (axis + 1), f"{name}/step"),
        begin_mask=free,
        end_mask=free,
    )
    return named(cut, name)


def let_read(
    readers: set[openvino.Input], cut: openvino.Node, past: openvino.Node, length: openvino.Node, axis: int
) -> None:
    """Let all ``readers`` of ``past`` read ``cut``, which `trimmed` made of it, and see the shape that is meant.

    A StridedSlice that begins at 1 has another: whoever asks for no more than the shape gets it from ``length``.
    """
    from openvino import opset8, opset13

    for reader in readers:
        node = reader.get_node()
        if cut.get_type_name() != "StridedSlice" or node.get_type_name() != "ShapeOf":
            reader.replace_source_output(cut.output(0))
            continue
        name, kind = node.get_friendly_name(), node.get_output_element_type(0).to_string()
        size = named(opset13.convert(length, kind), f"{name}/length")
        whole, place = named(opset13.shape_of(past, kind), f"{name}/past"), integers([axis], f"{name}/place")
        shape = named(opset8.scatter_update(whole, place, size, integers(0, f"{name}/zero")), f"{name}/cut")
        for user in node.output(0).get_target_inputs():
            user.replace_source_output(shape.output(0))


def reads_of(native: openvino.Model) -> dict[str, openvino.Node]:
    """The ReadValues by variable."""
    ops = (node for node in native.get_ops() if node.get_type_name() == "ReadValue")
    return {node.get_attributes()["variable_id"]: node for node in ops}


def past_of(read: openvino.Node) -> tuple[openvino.Node, set[openvino.Input]]:
    """What holds a variable's positions, its beam Gather where it has one, and all who read them.

    Raises:
        PreconditionError: GP319, positions are cut there already.
    """
    gather = beam_gather(read)
    readers = read.output(0).get_target_inputs()
    if gather is not None:
        readers = {reader for reader in readers if reader.get_node().get_name() != gather.get_name()}
        readers |= gather.output(0).get_target_inputs()
    kinds = {reader.get_node().get_type_name() for reader in readers} - {"ShapeOf"}
    if kinds and kinds <= SLICES:
        raise PreconditionError("GP319", f"positions of {read.get_friendly_name()} are cut already")
    return gather or read, readers


class OnnxPast:
    """The pasts of an ONNX model, and what all who read them are to read instead.

    Attributes:
        writer: Writes the new nodes, which stand before all others.
    """

    def __init__(self, model: OnnxModel, prefix: str) -> None:
        """Begin with nothing.

        Args:
            model: What to edit.
            prefix: How names of new nodes begin.

        Raises:
            UnsupportedError: GP340, the model imports a version of ONNX's operators from before 13.
        """
        self._model = model
        self.writer = NodeWriter(prefix, check_opset(model, prefix))

    def length(self) -> str:
        """As `past_length`."""
        names = {port.name for port in self._model.inputs}
        tokens = next((name for name in TOKEN_INPUTS if name in names), None)
        if tokens is None or "attention_mask" not in names:
            return self.add_input(PAST_LENGTH, "i64", [1])
        lengths = [self.writer.size(name, 1) for name in ("attention_mask", tokens)]
        return self.writer.op("Sub", *lengths, label="past_length")

    def add_input(self, name: str, element_type: str, shape: list[int | str]) -> str:
        """A new input; text stands for a dimension that is not fixed."""
        from onnx import helper

        self._model.proto.graph.input.append(helper.make_tensor_value_info(name, element_code(element_type), shape))
        return name

    def replace(self, past: str, new: str) -> None:
        """Let all who read the input ``past``, in bodies too, read ``new``.

        Raises:
            PreconditionError: GP319, positions are cut there already.
        """
        readers = {node.op_type for graph in graphs(self._model.proto) for node in graph.node if past in node.input}
        if readers and readers - {"Shape"} <= {"Slice"}:
            raise PreconditionError("GP319", f"positions of {past} are cut already")
        for graph in graphs(self._model.proto):
            for node in graph.node:
                for port, name in enumerate(node.input):
                    if name == past:
                        node.input[port] = new

    def finish(self) -> None:
        """Put what was written into the model."""
        for place, node in enumerate(self.writer.nodes):
            self._model.proto.graph.node.insert(place, node)
