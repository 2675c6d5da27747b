"""The pass `drop-identities`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy

from graphpass.analysis.lengths.proven import Lengths, find_lengths
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import fold, redirect
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.operators import SLICES
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

__all__ = ["DropIdentities", "mask_ends"]

_ATTENTION = "ScaledDotProductAttention"

#: Operators that keep all elements in order where they keep the shape.
_KEEPS_ORDER = frozenset({"Broadcast", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class DropIdentities(Pass[OpenVINOModel]):
    """Take out operators that give what they are given: slices of the whole, broadcasts and reshapes to the same shape.

    Exporters write them where sizes might differ in general: the mask is cut to the length of the key, which it has
    already. Lengths are told apart as `share-dimensions` does. What an output of the model is named after stays, and so
    does the end of a mask that is in the form from which paged attention reads a sliding window (see
    `expose-window`).

    Shapes:
        any; the result of what is taken out has the shape and type of its input.

    Before:
        mask -> Slice(0, length of the key) -> ScaledDotProductAttention
    After:
        mask -> ScaledDotProductAttention
    """

    name: ClassVar[str] = "drop-identities"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        sizes = find_lengths(model)
        kept = mask_ends(model.ov_model)
        dropped: dict[str, int] = {}
        for op in model.ov_model.get_ordered_ops():
            if op.get_name() not in kept and op.get_output_size() == 1 and _gives_its_input(op, sizes):
                source, kind = op.input_value(0), op.get_type_name()
                dropped[kind] = dropped.get(kind, 0) + (redirect(op.output(0), source) > 0)
        counts = {f"{kind} dropped": count for kind, count in sorted(dropped.items()) if count}
        if not counts:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, counts)


def mask_ends(model: openvino.Model) -> set[str]:
    """The Broadcast and Slice with which masks end that `expose-window` or optimum made, by name.

    The matchers in OpenVINO's state_management_pattern.cpp want Broadcast -> Select -> Slice -> attention.
    """
    names: set[str] = set()
    for op in model.get_ordered_ops():
        mask = op.input_value(3).get_node() if op.get_type_name() == _ATTENTION and op.get_input_size() > 3 else None
        select = mask.input_value(0).get_node() if mask is not None and mask.get_type_name() == "Slice" else None
        if mask is not None and select is not None and select.get_type_name() == "Select":
            names |= {mask.get_name(), *(source.get_node().get_name() for source in select.input_values())}
    return names


def _gives_its_input(op: openvino.Node, sizes: Lengths) -> bool:
    kind = op.get_type_name()
    if kind == "Convert":
        return bool(op.get_input_element_type(0) == op.get_output_element_type(0))
    if kind == "Transpose":
        order = fold(op.input_value(1))
        return order is not None and order.size > 0 and bool((order == numpy.arange(order.size)).all())
    if kind == "Concat":
        return bool(op.get_input_size() == 1)
    if kind not in _KEEPS_ORDER | SLICES:
        return False
    shape = sizes.shape(op.output(0))
    if shape is None or shape != sizes.shape(op.input_value(0)):
        return False
    if kind in _KEEPS_ORDER:
        return not _tells_more(op)
    steps = fold(op.input_value(3)) if op.get_input_size() > 3 else None
    return steps is not None and bool((steps == 1).all())


def _tells_more(op: openvino.Node) -> bool:
    """Whether ``op`` lets runtimes know a dimension that they could not infer."""
    before, after = op.get_input_partial_shape(0), op.get_output_partial_shape(0)
    return any(new.is_static and old.is_dynamic for old, new in zip(before, after, strict=True))
