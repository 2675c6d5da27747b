"""Copies of a model with one thing wrong; a checker that finds none of them checks nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper
from openvino import opset13 as ops
from support.logits_forms import constant, rename_value

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.model import Model

ModelT = TypeVar("ModelT", bound="Model")


def perturb_weight(model: OnnxModel, column: int) -> OnnxModel:
    """Another number in one column of the last MatMul's weight, so that only this logit changes."""
    mutant = model.clone()
    weights = {tensor.name: tensor for tensor in mutant.proto.graph.initializer}
    last = [node for node in mutant.proto.graph.node if node.op_type == "MatMul"][-1]
    weight = weights[last.input[1]]
    values = numpy_helper.to_array(weight).copy()
    values[:, column] += 0.1
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    return _edited(mutant)


def drop_scale(model: OnnxModel) -> OnnxModel:
    """The first attention's scores are not scaled."""
    mutant = model.clone()
    producers = {name: node for node in mutant.proto.graph.node for name in node.output}
    softmax = next(node for node in mutant.proto.graph.node if node.op_type == "Softmax")
    scores = producers[producers[softmax.input[0]].input[0]]
    scaled = producers[scores.input[0]]
    assert (scores.op_type, scaled.op_type) == ("MatMul", "Mul")
    scores.input[0] = scaled.input[0]
    return _edited(mutant)


def hide_first_position_in_decode(model: OnnxModel) -> OnnxModel:
    """Once there is a past, no token sees the first position."""
    nodes = [
        constant("one", np.array(1)),
        constant("zero", np.array(0)),
        constant("axis", np.array([0])),
        helper.make_node("Shape", ["attention_mask"], ["total"], start=1, end=2),
        helper.make_node("Shape", ["input_ids"], ["length"], start=1, end=2),
        helper.make_node("Sub", ["total", "length"], ["past"]),
        helper.make_node("Squeeze", ["total", "axis"], ["end"]),
        helper.make_node("Range", ["zero", "end", "one"], ["positions"]),
        helper.make_node("Min", ["past", "one"], ["first"]),
        helper.make_node("GreaterOrEqual", ["positions", "first"], ["seen"]),
        helper.make_node("Cast", ["seen"], ["seen_int"], to=TensorProto.INT64),
        helper.make_node("Mul", ["attention_mask", "seen_int"], ["mutated_mask"]),
    ]
    return _with_mask(model, nodes)


def ignore_padding(model: OnnxModel) -> OnnxModel:
    """Every position counts, whatever the attention mask says."""
    nodes = [
        helper.make_node("Sub", ["attention_mask", "attention_mask"], ["zeros"]),
        constant("one", np.array(1)),
        helper.make_node("Add", ["zeros", "one"], ["mutated_mask"]),
    ]
    return _with_mask(model, nodes)


def read_shape_of_mask_only(model: OnnxModel) -> OnnxModel:
    """The attention mask is an input, but nobody asks what it holds."""
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Shape", ["attention_mask"], ["mutated_shape"]),
        helper.make_node("ConstantOfShape", ["mutated_shape"], ["mutated_mask"], value=one),
    ]
    return _with_mask(model, nodes)


def mask_all_rows_like_the_first(model: OnnxModel) -> OnnxModel:
    """All sequences of a batch get the first one's padding."""
    nodes = [
        constant("begin", np.array([0])),
        constant("end", np.array([1])),
        helper.make_node("Slice", ["attention_mask", "begin", "end", "begin"], ["first_row"]),
        helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
        helper.make_node("Expand", ["first_row", "mask_shape"], ["mutated_mask"]),
    ]
    return _with_mask(model, nodes)


def drop_mask_input(model: OnnxModel) -> OnnxModel:
    """Every position counts, and there is no attention mask to say otherwise."""
    nodes = [
        constant("one", np.array([1])),
        helper.make_node("Shape", ["input_ids"], ["batch"], start=0, end=1),
        helper.make_node("Shape", ["input_ids"], ["length"], start=1, end=2),
        helper.make_node("Shape", ["past_key_values.0.key"], ["past"], start=2, end=3),
        helper.make_node("Add", ["past", "length"], ["total"]),
        helper.make_node("Concat", ["batch", "total"], ["mask_shape"], axis=0),
        helper.make_node("Expand", ["one", "mask_shape"], ["mutated_mask"]),
    ]
    mutant = _with_mask(model, nodes)
    inputs = mutant.proto.graph.input
    inputs.remove(next(info for info in inputs if info.name == "attention_mask"))
    return mutant


def drop_nan_guards(model: OnnxModel) -> OnnxModel:
    """Rows of attention that are masked whole become NaN."""
    mutant = model.clone()
    guarded = {node.output[0]: node.input[0] for node in mutant.proto.graph.node if node.op_type == "IsNaN"}
    guards = {
        node.output[0]: guarded[node.input[0]]
        for node in mutant.proto.graph.node
        if node.op_type == "Where" and node.input[0] in guarded
    }
    assert guards
    nodes = [node for node in mutant.proto.graph.node if node.op_type != "IsNaN" and node.output[0] not in guards]
    for node in nodes:
        for position, name in enumerate(node.input):
            node.input[position] = guards.get(name, name)
    _set_nodes(mutant, nodes)
    return _edited(mutant)


def fail_beyond(model: OnnxModel, positions: int) -> OnnxModel:
    """The runtime fails once there are more than so many positions."""
    nodes = [
        constant("table", np.zeros(positions)),
        constant("one", np.array([1])),
        helper.make_node("Shape", ["attention_mask"], ["total"], start=1, end=2),
        helper.make_node("Sub", ["total", "one"], ["newest"]),
        helper.make_node("Gather", ["table", "newest"], ["nothing"]),
        helper.make_node("Add", ["attention_mask", "nothing"], ["mutated_mask"]),
    ]
    return _with_mask(model, nodes)


def forget_new_values(model: OnnxModel, present: str) -> OnnxModel:
    """The cache gets zeros for the new tokens, while this step's attention reads what it should."""
    mutant = model.clone()
    concat = next(node for node in mutant.proto.graph.node if present in node.output)
    rename_value(mutant.proto.graph.node, present, "kept_for_attention")
    mutant.proto.graph.node.extend(
        [
            helper.make_node("Sub", [concat.input[1], concat.input[1]], ["forgotten"]),
            helper.make_node("Concat", [concat.input[0], "forgotten"], [present], axis=2),
        ]
    )
    return _edited(mutant)


def forget_new_state(model: OpenVINOModel, variable: str) -> OpenVINOModel:
    """As `forget_new_values`, in a variable."""
    mutant = model.clone()
    assign = next(sink for sink in mutant.ov_model.get_sinks() if variable in sink.get_variable_id())
    concat = assign.input_value(0).get_node()
    past, new = concat.input_value(0), concat.input_value(1)
    assign.input(0).replace_source_output(ops.concat([past, ops.subtract(new, new)], axis=2).output(0))
    return _edited(mutant)


def keep_old_state(model: OpenVINOModel) -> OpenVINOModel:
    """All variables are written back as they were read."""
    mutant = model.clone()
    for sink in mutant.ov_model.get_sinks():
        sink.input(0).replace_source_output(sink.input_value(0).get_node().input_value(0))
    return _edited(mutant)


def ignore_beams(model: OpenVINOModel, variable: str) -> OpenVINOModel:
    """One cache goes on with its own rows, whatever rows were selected."""
    mutant = model.clone()
    reads = [op for op in mutant.ov_model.get_ops() if op.get_type_name() == "ReadValue"]
    read = next(op for op in reads if op.get_variable_id().startswith(variable))
    for reader in read.output(0).get_target_inputs():
        if reader.get_node().get_type_name() == "Gather":
            reader.get_node().output(0).replace(read.output(0))
    return _edited(mutant)


def ignore_tree(model: OpenVINOModel) -> OpenVINOModel:
    """New tokens see all that stand before them, whatever branch they are of."""
    mutant = model.clone()
    mask = next(op for op in mutant.ov_model.get_parameters() if op.get_friendly_name() == "tree_mask")
    readers = mask.output(0).get_target_inputs()
    nothing = ops.multiply(mask, ops.constant(np.float32(0)))
    for reader in readers:
        reader.replace_source_output(nothing.output(0))
    return _edited(mutant)


def _with_mask(model: OnnxModel, nodes: list[NodeProto]) -> OnnxModel:
    mutant = model.clone()
    for node in mutant.proto.graph.node:
        for position, name in enumerate(node.input):
            if name == "attention_mask":
                node.input[position] = "mutated_mask"
    _set_nodes(mutant, [*nodes, *mutant.proto.graph.node])
    return _edited(mutant)


def _set_nodes(mutant: OnnxModel, nodes: list[NodeProto]) -> None:
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del mutant.proto.graph.node[:]
    mutant.proto.graph.node.extend(kept)


def _edited(mutant: ModelT) -> ModelT:
    mutant.mark_edited()
    return mutant
