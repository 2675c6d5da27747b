"""canonicalize-shapes: what OpenVINO's frontend for torch.export writes, as others write it."""

import numpy
import openvino
from openvino import opset13 as ops
from support.models import exporters
from support.piped import piped

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.io import load
from graphpass.passes.shapes.canonicalize_shapes import CanonicalizeShapes, counted, expanded
from graphpass.verify import compare


def test_exports_of_torch_export_compute_the_same():
    given = load(exporters("transformers-ov", "llama"))
    result = graphpass.PassManager((CanonicalizeShapes(),)).run(given)
    assert result.records[-1].result.statistics == {"expansions": 5, "ranges counted in integers": 3}
    assert not [*expanded(result.model.graph), *counted(result.model.graph)]
    assert compare(given, result.model, steps=3).passed


def test_ranges_of_real_steps_stay():
    count = ops.parameter([], numpy.float32, "count")
    steps = ops.range(numpy.float32(0), count, numpy.float32(0.5), "f32")
    model = OpenVINOModel(openvino.Model([ops.convert(steps, "i64")], [count]))
    assert piped(model, CanonicalizeShapes())[1].changed is False
