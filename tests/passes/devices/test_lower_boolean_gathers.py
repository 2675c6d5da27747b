"""`lower-boolean-gathers`: the same booleans, by numbers; what the GPU plugin refuses is predicted, and mended."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import infer
from support.loaded import openvino_model

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.devices.lower_boolean_gathers import LowerBooleanGathers
from graphpass.targets import check_model


def looked_up(element_type: str) -> OpenVINOModel:
    """The columns of a mask, looked up by row and column."""
    mask = ops.parameter(openvino.PartialShape([-1, -1]), openvino.Type.i64, name="mask")
    at = ops.parameter(openvino.PartialShape([-1, -1, 2]), openvino.Type.i64, name="at")
    for node in (mask, at):
        node.output(0).set_names({node.get_friendly_name()})
    found = ops.gather_nd(ops.convert(mask, element_type), at)
    found.set_friendly_name("lookup")
    result = ops.result(ops.select(ops.convert(found, "boolean"), ops.constant(1.0), ops.constant(2.0)))
    result.output(0).set_names({"chosen"})
    return OpenVINOModel(openvino.Model([result], [mask, at], "lookup"))


def refused(model: OpenVINOModel) -> set[str]:
    report = check_model(model, "gpu", confirm=False)
    return {str(finding.node) for finding in report.findings if finding.verdict == "refused"}


def test_booleans():
    before = looked_up("boolean")
    result = PassManager([LowerBooleanGathers()]).run(before)
    assert result.records[0].result.changed
    assert (refused(before), refused(result.model)) == ({"lookup"}, set())
    given = {"mask": numpy.array([[1, 0, 1], [0, 0, 1]]), "at": numpy.array([[[0, 0], [0, 1]], [[1, 1], [1, 2]]])}
    assert infer(result.model.ov_model, given)["chosen"].tolist() == [[1, 2], [2, 1]]
    assert not PassManager([LowerBooleanGathers()]).run(result.model).records[0].result.changed


@pytest.mark.parametrize("model", [looked_up("i32"), openvino_model("llama")], ids=["numbers", "llama"])
def test_what_has_none_stays(model):
    assert not PassManager([LowerBooleanGathers()]).run(model).records[0].result.changed
