"""drop-row-guards: zeros for tokens that see no key go, others stay."""

import numpy
import pytest
from onnx import numpy_helper
from support.loaded import exported
from support.models import exporters

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load
from graphpass.passes.masks.drop_row_guards import GUARD, DropRowGuards
from graphpass.verify import compare


@pytest.mark.parametrize("before", ["", "to-openvino,fuse-attention,"], ids=["decomposed", "fused"])
def test_guards_around_attention_go(before):
    given = load(exporters("transformers-onnx", "llama"))
    result = graphpass.PassManager(graphpass.parse(f"{before}drop-row-guards")).run(given)
    assert result.records[-1].result.statistics == {"guards dropped": 2}
    assert not any(GUARD.find(result.model.graph))
    assert compare(given, result.model, steps=3).passed


@pytest.mark.parametrize("limit", [2.0, 1.0])
def test_other_counts_stay(limit):
    model = load(exporters("transformers-onnx", "llama")).clone()
    assert isinstance(model, OnnxModel)
    least = next(node for node in model.proto.graph.node if node.op_type == "Less").input[1]
    tensor = next(tensor for tensor in model.proto.graph.initializer if tensor.name == least)
    tensor.CopyFrom(numpy_helper.from_array(numpy.array(limit, numpy.float32), least))
    model.mark_edited()
    made = graphpass.PassManager((DropRowGuards(),)).run(model).model
    assert any(GUARD.find(made.graph)) == (limit != 1)


def test_models_without_guards_stay():
    assert graphpass.PassManager((DropRowGuards(),)).run(exported("llama/onnx")).changed is False
