"""Repeated heads are read by consecutive query heads."""

import numpy
import pytest

from graphpass.passes.attention.repeated_heads import repeated_heads
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
from graphpass.testing import parse_model


@pytest.mark.parametrize(("size", "times"), [("4", 1), ("4", 3), ("d", 2)])
def test_each_head_is_repeated_in_place(size, times):
    model = parse_model(f"%x = Parameter : f32[b, 2, n, {size}]\n%y = Relu(%x)\nResult(%y) {{name=y}}")
    rewriter = model.rewriter()
    made = repeated_heads(rewriter.under("h"), model.graph.writes["y"].source(), 2, times)
    rewriter.output("made", rewriter.handle(made), "f32", ())
    rewriter.finish()
    x = numpy.arange(48, dtype=numpy.float32).reshape(2, 2, 3, 4)
    found = OnnxRuntimeRequest(model, True).infer({"x": x})["made"]
    numpy.testing.assert_array_equal(found, x.repeat(times, axis=1))
