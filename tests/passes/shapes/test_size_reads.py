"""Sizes are read from inputs and states, not from results of attention."""

from __future__ import annotations

import numpy
from openvino import opset13 as ops
from support.attention_graphs import infer, integers
from support.decode import compiled, fused_attention
from support.models import export
from support.simplified_shapes import before, dimension, made, simplified

from graphpass.engine.manager import PassManager
from graphpass.io import load
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.shapes.simplify_shapes import SimplifyShapes

ATTENTION = "ScaledDotProductAttention"


def test_lengths_do_not_depend_on_attention():
    """The plugin makes the grown cache an output of attention; what reads its length must not come before."""
    model = PassManager([SimplifyShapes(), MakeStateful()]).run(before("qwen3")).model
    assert fused_attention(compiled(model.ov_model)) == 2


def test_one_token_a_step_reads_the_length_of_its_inputs():
    """The CPU plugin makes the grown cache an output of attention, whose mask must not wait for its shape."""
    model = load(export("llama", "onnx"))
    for info in model.proto.graph.input:
        if info.name in {"input_ids", "position_ids"}:
            info.type.tensor_type.shape.dim[1].dim_value = 1
    model.mark_edited()
    result = PassManager([ToOpenVINO(), FuseAttention(), SimplifyShapes()]).run(model)
    assert result.records[-1].result.statistics["reads of keys redirected"] == 8
    compiled(result.model.ov_model)


def test_fixed_sizes_are_not_read_from_values():
    """NPUW transposes values, and paged attention removes them with the cache."""
    model = before("llama").clone()
    rewriter, attention = model.rewriter(), next(model.graph.of_op(ATTENTION))
    result, value = attention.outputs[0], attention.inputs[2]
    size = rewriter.op("Gather", rewriter.op("ShapeOf", value, name="shape"), [3], axis=0, name="size")
    target = rewriter.op("Concat", [0, 0, -1], size, axis=0, name="target")
    shaped = rewriter.op("Reshape", result, target, name="shaped")
    for use in model.graph.uses(result):
        rewriter.redirect(use.node, use.port, shaped)
    assert rewriter.finish()
    after, result = simplified(model, identities=False)
    assert result.statistics["sizes fixed"] == 2
    names = {op.get_friendly_name() for op in after.ov_model.get_ops()}
    assert "shaped" in names
    assert not {"shape", "size"} & names


def test_no_size_is_read_from_a_value_that_depends_on_it():
    """The mask is as large as a size of the keys, and is the only other place that has this size."""
    query, new = (ops.parameter([-1, 2, -1, 8], numpy.float32) for _ in range(2))
    past = ops.parameter([-1, 2, -1, 8], numpy.float32)
    key = ops.concat([past, new], 2)
    length = ops.reshape(dimension(key, 2), integers(1), special_zero=False)
    square = ops.broadcast(ops.constant(numpy.float32(0)), ops.concat([length, length], 0))
    attention = ops.scaled_dot_product_attention(query, key, key, square)
    model = made({"result": attention, "sizes": ops.shape_of(square)}, query=query, new=new, past=past)
    after, _ = simplified(model)
    feeds = {
        name: numpy.ones([1, 2, length, 8], numpy.float32) for name, length in (("query", 5), ("new", 5), ("past", 0))
    }
    numpy.testing.assert_array_equal(infer(after.ov_model, feeds)["sizes"], [5, 5])
