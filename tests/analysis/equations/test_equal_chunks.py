"""Forms of regions: equal for layers that compute the same."""

from __future__ import annotations

import numpy
from onnx import numpy_helper
from support.models import exporters

import graphpass
from graphpass.analysis.equations.chunk_regions import find_chunks
from graphpass.analysis.equations.equal_chunks import RegionForm, region_form
from graphpass.analysis.equations.linear_attention import find_chunked_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.dialects.onnx.model import OnnxModel


def loaded() -> OnnxModel:
    model = graphpass.load(exporters("transformers-onnx", "nemotron_h"))
    assert isinstance(model, OnnxModel)
    return model


def form(model: OnnxModel) -> RegionForm:
    (chunk,) = find_chunks(model.graph)
    found = region_form(model.graph, model.analysis(infer_sizes), chunk)
    assert found is not None
    return found


def test_results_of_a_layer_are_reused_for_an_equal_layer():
    first, second = loaded(), loaded()
    second.proto.graph.node.insert(0, second.proto.graph.node.pop(1))
    second.mark_edited()
    forms = form(first), form(second)
    assert forms[0].key == forms[1].key
    layers = [next(iter(model.analysis(find_chunked_attention).values())) for model in (first, second)]
    assert isinstance(layers[0], LinearAttention)
    assert layers[0].moved(dict(zip(forms[0].values, forms[1].values, strict=True))) == layers[1]


def test_other_operators_are_another_form():
    first, second = loaded(), loaded()
    node = next(node for node in second.proto.graph.node if node.op_type == "Exp" and node.output[0].startswith("exp"))
    node.op_type = "Neg"
    second.mark_edited()
    assert form(first).key != form(second).key


def test_other_constants_are_another_form():
    first, second = loaded(), loaded()
    values = {value.name for value in form(second).values}
    tensor = next(one for one in second.proto.graph.initializer if one.name in values and not one.dims)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + numpy.array(1, numpy.int64), tensor.name))
    second.mark_edited()
    assert form(first).key != form(second).key
