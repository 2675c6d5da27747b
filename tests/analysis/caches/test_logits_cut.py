"""Outputs and variables that NPUW cannot place before or after its cut before the logits."""

import pytest

from graphpass.analysis.caches.logits_cut import crosses_logits_cut
from graphpass.testing import parse_model

MODEL = """%x = Parameter : f32[b, n, 4]
%s = ReadValue {{variable=s}} : f32[b, n, 4]
%w = Constant : f32[4, 9]
%v = Constant : f32[4, 4]
%hidden = Relu(%x)
%product = MatMul(%hidden, %w)
{logits}
{other}
Result(%logits) {{name=logits}}
Result(%y) {{name=y}}
Assign(%t) {{variable=s}}"""
PLAIN = "%logits = Convert(%product) {to=f16}"
CAPPED = "%less = Divide(%product, 30.0)\n%tanh = Tanh(%less)\n%logits = Multiply(%tanh, 30.0)"


@pytest.mark.parametrize(
    ("logits", "other", "crossing"),
    [
        (PLAIN, "%y = Relu(%s)\n%t = Add(%s, %x)", []),
        (PLAIN, "%y = Convert(%hidden) {to=f32}\n%t = Add(%hidden, %x)", []),
        (PLAIN, "%y = MatMul(%x, %v)\n%t = Add(%s, %x)", ["y"]),
        (CAPPED, "%y = Relu(%s)\n%m = MatMul(%x, %v)\n%t = Add(%m, %s)", ["s"]),
        (CAPPED, "%y = Relu(%s)\n%m = MatMul(%x, %v)\n%t = Tanh(%m)", []),
    ],
)
def test_products_that_outputs_read(logits, other, crossing):
    graph = parse_model(MODEL.format(logits=logits, other=other), "openvino").graph
    found = [node.attributes.get("variable", node.name) for node in crosses_logits_cut(graph)]
    assert found == crossing


@pytest.mark.parametrize("logits", [PLAIN, CAPPED])
def test_the_cut_value_itself_fits_in_neither_part(logits):
    text = MODEL.format(logits=logits, other="%t = Add(%s, %x)").replace("Result(%y)", "Result(%hidden)")
    assert [node.name for node in crosses_logits_cut(parse_model(text, "openvino").graph)] == ["y"]
