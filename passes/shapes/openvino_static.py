"""Gives an OpenVINO model fixed shapes; see the pass `make-static`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openvino
from openvino import opset13

from graphpass.dialects.openvino.ports import port_name
from graphpass.dialects.openvino.rewrite import find_output, integers, named
from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.cache import Cache

__all__ = ["make_static"]

#: Operators between the product that makes logits and their output.
_BEHIND_LOGITS = frozenset({"Add", "Convert", "Divide", "Multiply", "Tanh"})


def make_static(model: OpenVINOModel, caches: Iterable[Cache], length: int, past: int) -> None:
    """Fix all shapes of ``model``, let presents hold new positions only, and logits the last one.

    Args:
        model: What to edit.
        caches: Its caches.
        length: New tokens a run takes.
        past: Slots of the past.

    Raises:
        UnsupportedError: GP393, a dimension stays open, or a cache is not appended to by a Concat.
    """
    native = model.ov_model
    reads = {cache.read: cache for cache in caches}
    for cache in reads.values():
        if cache.kind == "kv":
            _return_new(native, cache)
    _keep_last(native)
    shapes = {}
    for port in native.inputs:
        cache_of_port = reads.get(port_name(port))
        sizes = [past + length if port_name(port) == "attention_mask" else length] * len(port.partial_shape)
        if cache_of_port is not None:
            sizes = [past if axis == cache_of_port.axes.sequence else 0 for axis in range(len(sizes))]
            batch = cache_of_port.axes.batch
        else:
            batch = 0
        shapes[port] = openvino.PartialShape(
            [
                dimension if dimension.is_static else openvino.Dimension(1 if axis == batch else size)
                for axis, (dimension, size) in enumerate(zip(port.partial_shape, sizes, strict=True))
            ]
        )
    try:
        native.reshape(shapes)
    except RuntimeError as error:
        raise UnsupportedError("GP393", f"the model takes no fixed shapes: {_words(error)}") from error
    for op in native.get_ordered_ops():
        for output in op.outputs():
            if output.get_partial_shape().is_dynamic:
                raise UnsupportedError(
                    "GP393",
                    f"{op.get_type_name()} {op.get_friendly_name()} still makes {output.get_partial_shape()}",
                    "its size depends on values, not on the shapes of inputs",
                )


def _return_new(native: openvino.Model, cache: Cache) -> None:
    """Let the present be what the Concat appends, instead of all that it makes."""
    result = find_output(native, str(cache.write))
    whole = result.input_value(0)
    concat, casts = whole.get_node(), []
    while concat.get_type_name() == "Convert":
        casts.append(concat)
        concat = concat.input_value(0).get_node()
    if concat.get_type_name() != "Concat" or concat.get_input_size() != 2:
        raise UnsupportedError(
            "GP393", f"cache {cache.name} is not appended to by a Concat, but {concat.get_type_name()}"
        )
    names = result.output(0).get_names() | whole.get_names()
    whole.set_names(set())
    new = concat.input_value(1)
    for place, cast in enumerate(reversed(casts)):
        kind = cast.get_output_element_type(0)
        new = named(opset13.convert(new, kind), f"{cache.write}/new/{place}").output(0)
    result.input(0).replace_source_output(new)
    new.add_names(names)


def _keep_last(native: openvino.Model) -> None:
    """Compute logits of the last position only: cut before the product with the vocabulary."""
    results = native.get_results()
    found = [port.get_node() for port in native.outputs if port_name(port) == "logits"]
    result = found[0] if found else results[0]
    target = result.input(0)
    node = target.get_source_output().get_node()
    while node.get_type_name() in _BEHIND_LOGITS:
        target = next(
            (port for port in node.inputs() if port.get_partial_shape().rank.get_length() == 3), node.input(0)
        )
        node = target.get_source_output().get_node()
    if node.get_type_name() == "MatMul":
        target = node.input(0)
    source = target.get_source_output()
    bounds = (integers([value], f"last_position/{name}") for name, value in _LAST.items())
    last = named(opset13.slice(source, *bounds), "last_position")
    target.replace_source_output(last.output(0))


#: Bounds of a slice that takes the last position.
_LAST = {"start": -1, "stop": 2**63 - 1, "step": 1, "axis": 1}


def _words(error: RuntimeError) -> str:
    from graphpass.dialects.openvino.xml import openvino_words

    return openvino_words(error)
