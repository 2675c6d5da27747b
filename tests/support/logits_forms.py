"""Copies of ONNX models whose logits have another name or shape, and that have further outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel


def rename_logits(model: OnnxModel, name: str) -> OnnxModel:
    """The logits are called something else."""
    copy = model.clone()
    rename_value(copy.proto.graph.node, "logits", name)
    next(output for output in copy.proto.graph.output if output.name == "logits").name = name
    return _edited(copy)


def flatten_logits(model: OnnxModel) -> OnnxModel:
    """Logits without a batch dimension."""
    copy = model.clone()
    rename_value(copy.proto.graph.node, "logits", "all_logits")
    copy.proto.graph.node.append(helper.make_node("Flatten", ["all_logits"], ["logits"], axis=2))
    next(output for output in copy.proto.graph.output if output.name == "logits").type.tensor_type.ClearField("shape")
    return _edited(copy)


def last_logits_only(model: OnnxModel) -> OnnxModel:
    """Logits of the last position only."""
    copy = model.clone()
    rename_value(copy.proto.graph.node, "logits", "all_logits")
    copy.proto.graph.node.extend(
        [
            constant("last", np.array([-1])),
            constant("length_axis", np.array([1])),
            constant("far", np.array([np.iinfo(np.int64).max])),
            helper.make_node("Slice", ["all_logits", "last", "far", "length_axis"], ["logits"]),
        ]
    )
    return _edited(copy)


def add_output(model: OnnxModel, name: str, of: str, order: tuple[int, ...] = (0, 1, 2)) -> OnnxModel:
    """One more output, a copy of ``of`` (a float value of rank 3) with its axes in this order."""
    copy = model.clone()
    copy.proto.graph.node.append(helper.make_node("Transpose", [of], [name], perm=order))
    copy.proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None, None]))
    return _edited(copy)


def rename_value(nodes: list[NodeProto], old: str, new: str) -> None:
    """Rename a value in all its producers and users."""
    for node in nodes:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name == old:
                    names[position] = new


def constant(name: str, value: np.ndarray) -> NodeProto:
    """Make a Constant of integers."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value.astype(np.int64)))


def _edited(copy: OnnxModel) -> OnnxModel:
    copy.mark_edited()
    return copy
