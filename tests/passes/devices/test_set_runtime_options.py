import openvino
import pytest
from support.loaded import converted, exported
from support.models import export

import graphpass
from graphpass.dialects.openvino.runtime_options import runtime_options
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.errors import PreconditionError
from graphpass.passes.devices.set_runtime_options import SetRuntimeOptions

FACTOR = {"ACTIVATIONS_SCALE_FACTOR": "8.0"}
BOTH = FACTOR | {"KV_CACHE_PRECISION": "f16"}


def without(model):
    """``model`` as if its exporter had set none."""
    del model.ov_model.rt_info["runtime_options"]
    return model


@pytest.mark.parametrize("variant", ["ov-stateful", "ov-stateful-fp16", "ov-stateful-int8"])
def test_options_equal_those_of_optimum(variant):
    model = graphpass.load(export("llama", variant))
    theirs = runtime_options(model)
    assert theirs == (FACTOR if "int8" in variant else BOTH)
    assert isinstance(PassManager([SetRuntimeOptions()]).run(model).records[0].result, Skipped)
    result = PassManager([SetRuntimeOptions()]).run(without(model)).model
    assert runtime_options(result) == theirs


@pytest.mark.parametrize("target", ["cpu", "gpu", "npu", "paged"])
def test_targets_set_the_options(target):
    assert runtime_options(converted(exported("llama/onnx"), target).model) == BOTH


def test_options_of_the_model_are_kept():
    source = graphpass.load(export("llama", "ov-stateless"))
    source.ov_model.set_rt_info("u8", ["runtime_options", "KV_CACHE_PRECISION"])
    result = graphpass.PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model
    assert runtime_options(result) == BOTH | {"KV_CACHE_PRECISION": "u8"}


def test_plugins_apply_the_options(tmp_path):
    """Not what they would take by default."""
    graphpass.save(converted(exported("llama/onnx")).model, tmp_path / "openvino_model.xml")
    compiled = openvino.Core().compile_model(tmp_path / "openvino_model.xml", "CPU")
    assert compiled.get_property("KV_CACHE_PRECISION") == openvino.Type.f16


def test_a_stateless_model_is_refused():
    with pytest.raises(PreconditionError, match="GP302"):
        PassManager([SetRuntimeOptions()]).run(graphpass.load(export("llama", "ov-stateless")))


def test_onnx_models_have_no_options():
    assert runtime_options(graphpass.load(export("llama", "onnx"))) == {}
