import pytest
from support.models import export

from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError
from graphpass.io import load
from graphpass.passes.convert.select_branch import SelectBranch
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest


def names(ports):
    return {port.name for port in ports}


def test_each_branch_is_the_decoder_it_was_merged_from():
    for model in ("t5", "whisper"):
        merged = load(export(model, "onnx") / "decoder_model_merged.onnx")
        for value, name in ((True, "decoder_with_past_model"), (False, "decoder_model")):
            whole = load(export(model, "onnx") / f"{name}.onnx")
            taken = PassManager([SelectBranch(value=value)]).run(merged).model
            taken.validate()
            assert names(taken.inputs) == names(whole.inputs)
            assert names(taken.outputs) == names(whole.outputs)
            assert len(taken.proto.graph.initializer) == len(whole.proto.graph.initializer)
            OnnxRuntimeRequest(taken, exact=True)


def test_the_input_is_unchanged():
    merged = load(export("t5", "onnx") / "decoder_model_merged.onnx")
    before = merged.digest()
    PassManager([SelectBranch()]).run(merged)
    assert merged.digest() == before


def test_a_condition_without_an_input_is_refused():
    merged = load(export("t5", "onnx") / "decoder_model_merged.onnx")
    once = PassManager([SelectBranch()]).run(merged).model
    for model, given in ((once, "use_cache_branch"), (merged, "input_ids")):
        with pytest.raises(PreconditionError, match=f"GP346: .* input {given} is not the condition of an If"):
            PassManager([SelectBranch(given)]).run(model)
