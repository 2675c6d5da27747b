"""The pass `count-positions`: positions from the mask, for models without caches."""

import numpy
import pytest

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.testing import parse_model, run, tiny_model

TEXT = """%ids = Parameter : i64[b, n]
%attention_mask = Parameter : i64[b, n]
%position_ids = Parameter : {kind}[b, n]
%table = Constant : f32[16, 4]
%placed = Gather(%table, %position_ids) {{axis=0}}
%words = Gather(%table, %ids) {{axis=0}}
%sum = Add(%placed, %words)
Result(%sum) {{name=y}}
Result(%placed) {{name=placed}}"""
MASK = numpy.array([[1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1]])


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize("kind", ["i64", "i32"])
def test_padding_has_the_position_of_the_token_before(dialect, kind):
    model = parse_model(TEXT.format(kind=kind), dialect)
    result = run(model, "count-positions")
    assert [port.name for port in result.inputs] == ["ids", "attention_mask"]
    feeds = {"ids": numpy.zeros((3, 4), numpy.int64), "attention_mask": MASK}
    found = open_request(result, Device()).infer(feeds)["placed"]
    positions = numpy.array([[0, 1, 2, 3], [0, 0, 0, 1], [0, 0, 0, 1]])
    given = open_request(model, Device()).infer({**feeds, "position_ids": positions.astype(f"int{kind[1:]}")})
    numpy.testing.assert_array_equal(found, given["placed"])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: tiny_model("llama", layers=1), "the model has caches"),
        (lambda: parse_model("%x = Parameter : f32[n]\n%y = Relu(%x)\nResult(%y) {name=y}"), "has no inputs"),
    ],
    ids=["caches", "no positions"],
)
def test_other_models_are_skipped(model, reason):
    (record,) = PassManager(parse("count-positions")).run(model()).records
    assert reason in record.result.reason
