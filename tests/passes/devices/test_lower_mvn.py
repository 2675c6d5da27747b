"""lower-mvn: norms of models with experts are computed by separate operators."""

import numpy
import pytest
from support.attention_graphs import infer

from graphpass.testing import assert_fused, parse_model, run

MODEL = """%x = Parameter : f32[?, 8]
%norm = MVN(%x, [-1]) {{eps=1e-05, eps_mode="INSIDE_SQRT", normalize_variance={variance}}}
{experts}
Result(%out) {{name=out}}
"""
EXPERTS = "%top, %chosen = TopK(%norm, 2) {axis=1, mode=max, sort=value}\n%out = Relu(%top)"


@pytest.mark.parametrize(
    ("experts", "variance", "lowered"), [(EXPERTS, "true", 1), (EXPERTS, "false", 0), ("%out = Relu(%norm)", "true", 0)]
)
def test_norms_of_models_with_experts_are_lowered(experts, variance, lowered):
    model = parse_model(MODEL.format(experts=experts, variance=variance), "openvino")
    result = run(model, "lower-mvn")
    assert_fused(result, MVN=1 - lowered, ReduceMean=2 * lowered)
    x = numpy.random.default_rng(0).standard_normal((3, 8), numpy.float32)
    before, after = (infer(each.ov_model, {"x": x}) for each in (model, result))
    numpy.testing.assert_allclose(after["out"], before["out"], atol=1e-6)
