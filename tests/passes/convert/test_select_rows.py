"""select-rows: rows of both tables replace the table that an If chooses."""

import io

import numpy
import onnx.parser
import openvino
import pytest

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.convert.select_rows import SelectRows

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
rows (int64[B, N] places, bool is_long) => (float[B, N, 2] cosines, float[B, N, 2] doubled, float[R, 2] whole) {
  cos, sin = If (is_long) <
    then_branch = long () => (float[4, 2] own, float[4, 2] other) {
      own = Constant<value = float[4, 2] {1, 2, 3, 4, 5, 6, 7, 8}>()
      other = Constant<value = float[4, 2] {9, 8, 7, 6, 5, 4, 3, 2}>()
    },
    else_branch = short () => (float[2, 2] own, float[2, 2] other) {
      own = Constant<value = float[2, 2] {-1, -2, -3, -4}>()
      made = Constant<value = float[2, 2] {-5, -6, -7, -8}>()
      other = Neg(made)
    }
  >
  cosines = Gather(cos, places)
  twice = Gather(sin, places)
  doubled = Add(twice, twice)
  whole = Identity(cos)
}
"""


@pytest.mark.parametrize(("is_long", "places"), [(True, [[0, 3], [1, 2]]), (False, [[0, 1], [1, 0]])])
def test_rows_are_those_of_the_chosen_table(is_long, places):
    proto = onnx.parser.parse_model(MODEL)
    model = OpenVINOModel(openvino.Core().read_model(io.BytesIO(proto.SerializeToString())))
    done = PassManager([SelectRows()]).run(model)
    assert done.records[0].result.statistics == {"gathers of chosen tables": 1}
    feeds = {"places": numpy.array(places), "is_long": numpy.array(is_long)}
    before, after = (openvino.compile_model(each.ov_model, "CPU")(feeds) for each in (model, done.model))
    for name in ("cosines", "doubled", "whole"):
        numpy.testing.assert_array_equal(after[name], before[name])
    (chosen,) = done.model.graph.of_op("Select")
    assert {done.model.graph.producer(rows).op for rows in chosen.sources[1:]} == {"Gather"}
