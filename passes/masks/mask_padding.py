"""The pass `mask-padding`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import find_input, has_input, integers, named, token_input
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped, Unchanged
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.cache import Cache

__all__ = ["MaskPadding"]

_MASK = "attention_mask"

#: Operators between a cache and what takes it in: reordering by beams, and types.
_TOWARDS_UPDATE = frozenset({"Convert", "Gather"})

_LOOPS = frozenset({"Loop", "TensorIterator"})


@dataclass(frozen=True)
class MaskPadding(Pass[OpenVINOModel]):
    """Keep padding out of linear caches: a step leaves them as if its padding had not been fed.

    Attention hides padding behind a mask; a convolution's window and a recurrent state take in whatever comes. NPUW
    pads each chunk of a prompt on the left, up to a fixed size, so that padding stands in front of the first tokens and
    between a state and the tokens that continue it (``infer_chunked_prefill`` in ``llm_infer_request.cpp``). Setting
    what enters to 0, as exporters do that mask at all, is right in the first place only.

    Where ``attention_mask`` of a step's tokens is 0, a recurrent state stays what it is, and a window is moved behind
    the padding, next to the tokens. Without padding nothing changes. What a step computes for padding is not defined.

    Shapes:
        attention_mask ``[batch, total]``; a window ``[batch, channels, kernel]`` with new columns ``[batch, channels,
        length]``; a recurrent state ``[batch, ...]`` that a loop over the tokens carries.

    Before:
        window -> Concat(., new columns) -> convolution, Slice -> window
    After:
        window -> Concat(., new columns) -> Gather(., Select(column < padding + kernel, column - padding, column)) ->
        convolution, Slice -> window

    Before:
        Loop { state -> update -> state }
    After:
        Loop { state -> update -> Select(attention_mask of the token, ., state) -> state }
    """

    name: ClassVar[str] = "mask-padding"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        native = model.ov_model
        caches = analyze_caches(model).of_kind("linear")
        if not caches:
            return Unchanged()
        ids = token_input(native)
        if ids is None or not has_input(native, _MASK):
            return Skipped(f"the model has no inputs {_MASK} and input_ids that tell what is padding")
        reads = {node.name: node.native for node in model.graph.of_op("Parameter", "ReadValue")}
        tokens = _Tokens(find_input(native, _MASK), find_input(native, ids))
        counts = {"windows masked": 0, "states masked": 0}
        notes = []
        for cache in caches:
            entries = _entries(reads[cache.read])
            entry = entries[0] if len(entries) == 1 and cache.axes.batch == 0 else None
            if entry is not None and _is_window(entry):
                counts["windows masked"] += _mask_window(entry, tokens, cache)
            elif entry is not None and _is_carried(entry):
                counts["states masked"] += _mask_state(entry, tokens, cache)
            else:
                taking = ", ".join(sorted({entry.get_node().get_type_name() for entry in entries})) or "nothing"
                notes.append(f"padding is not kept out of {cache.name}: {taking} takes it in")
        if not any(counts.values()):
            return Unchanged(tuple(notes))
        native.validate_nodes_and_infer_types()
        return Changed(model, {told: count for told, count in counts.items() if count}, tuple(notes))


def _entries(read: openvino.Node) -> list[openvino.Input]:
    """Where the step takes in what it starts with."""
    found, pending = [], [read]
    while pending:
        for reader in pending.pop().output(0).get_target_inputs():
            kind = reader.get_node().get_type_name()
            if kind in _TOWARDS_UPDATE and reader.get_index() == 0:
                pending.append(reader.get_node())
            elif kind != "ShapeOf":
                found.append(reader)
    return found


class _Tokens:
    """What the attention mask says of a step's tokens, made once."""

    def __init__(self, mask: openvino.Node, ids: openvino.Node) -> None:
        self._mask, self._ids = mask, ids
        self._orders: dict[int, openvino.Node] = {}

    @functools.cached_property
    def are_real(self) -> openvino.Node:
        """Boolean ``[batch, length]``: which tokens are no padding."""
        from openvino import opset13

        name = f"{_MASK}/new"
        shape, first, one = (
            opset13.shape_of(self._ids, "i64"),
            integers([0], f"{name}/first"),
            integers([1], f"{name}/1"),
        )
        length = opset13.gather(shape, one, first)
        last = opset13.slice(self._mask, opset13.negative(length), integers([2**63 - 1], f"{name}/end"), one, one)
        return named(opset13.convert(last, "boolean"), name)

    def next_to_window(self, width: int) -> openvino.Node:
        """i64 ``[batch, width + length]``: for each column of a window and the new ones, which one belongs there."""
        from openvino import opset13

        if width not in self._orders:
            name = f"{_MASK}/behind_{width}"
            zero, one, size = (integers(number, f"{name}/{number}") for number in (0, 1, width))
            length = opset13.gather(opset13.shape_of(self.are_real, "i64"), one, zero)
            column = opset13.range(zero, opset13.add(length, size), one, "i64")
            padding = opset13.reduce_sum(opset13.convert(opset13.logical_not(self.are_real), "i64"), one, True)
            # In front of the window is nothing that is read; any column may stand there.
            moved = opset13.maximum(opset13.subtract(column, padding), zero)
            behind = opset13.less(column, opset13.add(padding, size))
            self._orders[width] = named(opset13.select(behind, moved, column), name)
        return self._orders[width]


def _is_window(entry: openvino.Input) -> bool:
    """Whether new columns are appended to a window of fixed width."""
    joined = entry.get_node()
    if joined.get_type_name() != "Concat" or joined.get_input_size() != 2 or entry.get_index() != 0:
        return False
    return bool(joined.get_input_partial_shape(0)[_axis(joined)].is_static)


def _axis(joined: openvino.Node) -> int:
    """Along which axis a Concat joins, from 0."""
    return int(joined.get_attributes()["axis"]) % len(joined.get_output_partial_shape(0))


def _mask_window(entry: openvino.Input, tokens: _Tokens, cache: Cache) -> bool:
    """Move a convolution's window behind the padding; whether it was not there yet."""
    from openvino import opset13

    joined = entry.get_node()
    readers = [port for port in joined.output(0).get_target_inputs() if port.get_node().get_type_name() != "ShapeOf"]
    if all(_aligns(port.get_node()) for port in readers):
        return False
    axis = _axis(joined)
    width = joined.get_input_partial_shape(0)[axis].get_length()
    order = tokens.next_to_window(width)
    name = f"{cache.read}/behind_padding"
    aligned = named(opset13.gather(joined, order, integers(axis, f"{name}/axis"), 1), name)
    for port in readers:
        port.replace_source_output(aligned.output(0))
    return True


def _aligns(node: openvino.Node) -> bool:
    """Whether ``node`` is the Gather of this pass."""
    return bool(node.get_type_name() == "Gather" and node.get_attributes()["batch_dims"] == 1)


def _is_carried(entry: openvino.Input) -> bool:
    """Whether a loop carries the state and goes through tokens one by one, from the first."""
    from openvino.op.util import SliceInputDescription

    loop = entry.get_node()
    if loop.get_type_name() not in _LOOPS or _carried(entry) is None:
        return False
    sliced = [given for given in loop.get_input_descriptions() if isinstance(given, SliceInputDescription)]
    ways = {(given.start, given.stride, given.part_size, given.end) for given in sliced}
    return ways == {(0, 1, 1, -1)}


def _carried(entry: openvino.Input) -> openvino.op.util.MergedInputDescription | None:
    from openvino.op.util import MergedInputDescription

    for given in entry.get_node().get_input_descriptions():
        if isinstance(given, MergedInputDescription) and given.input_index == entry.get_index():
            return given
    return None


def _mask_state(entry: openvino.Input, tokens: _Tokens, cache: Cache) -> bool:
    """Let a loop leave its state as it is for padding; whether it did not yet."""
    import openvino
    from openvino import opset13

    loop = entry.get_node()
    carried = _carried(entry)
    assert carried is not None
    body = loop.get_function()
    before = body.get_parameters()[carried.body_parameter_index]
    result = body.get_results()[carried.body_value_index]
    after = result.input_value(0)
    if after.get_node().get_type_name() == "Select" and after.get_node().input_value(2) == before.output(0):
        return False
    name = f"{cache.read}/is_real"
    is_real = named(opset13.parameter(openvino.PartialShape([-1, 1]), openvino.Type.boolean), name)
    body.add_parameters([is_real])
    rank = len(before.get_output_partial_shape(0))
    shape = named(opset13.constant(numpy.array([-1] + [1] * (rank - 1))), f"{name}/shape")
    condition = named(opset13.reshape(is_real, shape, False), f"{name}/laid_out")
    kept = named(opset13.select(condition, after, before), f"{cache.read}/kept")
    result.input(0).replace_source_output(kept.output(0))
    loop.set_sliced_input(is_real, tokens.are_real.output(0), 0, 1, 1, -1, 1)
    # A model keeps the order of its nodes until an edge is replaced; one that is added does not tell it.
    entry.replace_source_output(loop.input_value(entry.get_index()))
    return True
