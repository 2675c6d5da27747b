"""Lowering skip-norm: OpenVINO keeps epsilons of norms in f16 and bf16."""

from __future__ import annotations

import pytest

from graphpass.analysis.equations.norms import find_epsilons
from graphpass.testing import parse_model, run

EPSILON = 3e-8

NORM = f"""
%x = Parameter : f16[b, n, 12]
%residual = Parameter : f16[b, n, 12]
%weight = Constant : f16[12]
%y, %mean, %deviation, %total =
 com.microsoft.SkipSimplifiedLayerNormalization(%x, %residual, %weight) {{epsilon={EPSILON}}} :
 f16[b, n, 12], f32[b, n, 1], f32[b, n, 1], f16[b, n, 12]
Result(%y) {{name=y}}
""".replace("\n ", " ")


@pytest.mark.parametrize("element_type", ["f16", "bf16"])
def test_openvino_keeps_the_epsilon(element_type):
    """The frontend makes 1e-6 of f16 1.013e-6, and 3e-8 is 0."""
    model = parse_model(NORM.replace("f16", element_type))
    kept = run(model, "lower-operators,to-openvino,change-precision")
    lost = run(model, "to-openvino,change-precision")
    (found,) = (number for _, number in find_epsilons(kept))
    assert found == pytest.approx(EPSILON, rel=1e-6)
    assert [number for _, number in find_epsilons(lost)] != [pytest.approx(EPSILON, rel=1e-4)]
