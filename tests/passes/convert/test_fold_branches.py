"""fold-branches: Ifs that sizes decide are replaced by a branch, and others are kept."""

import io

import numpy
import onnx.parser
import onnxruntime
import openvino

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.jobs.pipelines import pipeline_for
from graphpass.passes.convert.fold_branches import FoldBranches

#: Branches of two Ifs use the same names, as bodies may.
MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
scores (float[B, N] x, float[B, N] y, bool given) => (float[B, N] z) {
  sizes = Shape(x)
  doubled = Add(x, y)
  others = Shape(%OTHER%)
  last = Constant<value_int = 1>()
  length = Gather(sizes, last)
  other = Gather(others, last)
  alike = Equal(length, other)
  first = If (alike) <
    then_branch = same () => (float[B, N] own) { inner = Neg(x) own = Exp(inner) },
    else_branch = unlike () => (float[1, B, N] own) { inner = Constant<value_ints = [0]>() own = Unsqueeze(x, inner) }
  >
  differ = Not(alike)
  second = If (differ) <
    then_branch = unlike () => (float[1, B, N] own) { inner = Constant<value_ints = [0]>() own = Unsqueeze(x, inner) },
    else_branch = same () => (float[B, N] own) { inner = Abs(y) own = Sqrt(inner) }
  >
  third = If (given) <
    then_branch = yes () => (float[B, N] own) { own = Neg(x) },
    else_branch = no () => (float[B, N] own) { own = Identity(x) }
  >
  sum = Add(first, second)
  z = Add(sum, third)
}
"""


def model_of(other: str, ports: str = "bool given") -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(MODEL.replace("%OTHER%", other).replace("bool given", ports, 1)))


def folded(model: OnnxModel) -> OnnxModel:
    return PassManager([FoldBranches()]).run(model).model


def test_branches_are_taken_if_sizes_decide():
    model = model_of("doubled")
    result = folded(model)
    result.validate()
    assert [node.outputs[0].name for node in result.graph.of_op("If")] == ["third"]
    random = numpy.random.default_rng(0)
    feeds = {name: random.standard_normal((2, 3)).astype(numpy.float32) for name in "xy"}
    for given in (True, False):
        before, after = (
            onnxruntime.InferenceSession(each.proto.SerializeToString()).run(
                None, feeds | {"given": numpy.array(given)}
            )
            for each in (model, result)
        )
        assert (before[0] == after[0]).all()


def test_conditions_of_unrelated_sizes_are_kept():
    model = model_of("free", "bool given, float[B, M] free")
    assert folded(model).digest() == model.digest()


def test_conversions_fold_branches():
    names = [step.name for step in pipeline_for(graphpass.get_target("ort"), model_of("doubled"))]
    assert names[0] == "fold-branches"


def test_branches_are_taken_in_openvino():
    model = model_of("doubled")
    native = openvino.Core().read_model(io.BytesIO(model.proto.SerializeToString()))
    taken = PassManager([FoldBranches()]).run(OpenVINOModel(native)).model
    assert len(list(taken.graph.of_op("If"))) == 1
    random = numpy.random.default_rng(0)
    feeds = {name: random.standard_normal((2, 3)).astype(numpy.float32) for name in "xy"}
    session = onnxruntime.InferenceSession(model.proto.SerializeToString())
    for given in (True, False):
        (before,) = session.run(["z"], {**feeds, "given": numpy.array(given)})
        after = openvino.compile_model(taken.ov_model, "CPU")({**feeds, "given": numpy.array(given)})["z"]
        numpy.testing.assert_allclose(after, before, rtol=1e-5)
