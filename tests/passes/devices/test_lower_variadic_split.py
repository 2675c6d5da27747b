"""`lower-variadic-split`: the same numbers, and only where activations are scaled and parts are multiplied."""

from __future__ import annotations

import pytest
from support.decode import compiled, greedy
from support.loaded import openvino_model
from support.models import reference

from graphpass.engine.manager import PassManager
from graphpass.passes.devices.lower_variadic_split import LowerVariadicSplit


def splits(model):
    return sum(op.get_type_name() == "VariadicSplit" for op in model.ov_model.get_ops())


@pytest.mark.parametrize("variant", ["ov-stateful", "ov-stateless"])
def test_splits_of_gated_convolutions_are_lowered(variant):
    result = PassManager([LowerVariadicSplit()]).run(openvino_model("lfm2", variant))
    assert result.records[0].result.changed
    assert (splits(openvino_model("lfm2", variant)), splits(result.model)) == (2, 0)
    expected = reference("lfm2")
    found = greedy(compiled(result.model.ov_model).create_infer_request(), [expected["prompt_ids"]], 12)
    assert found == [expected["greedy_ids"]]
    assert not PassManager([LowerVariadicSplit()]).run(result.model).records[0].result.changed


def test_other_splits_stay():
    result = PassManager([LowerVariadicSplit()]).run(openvino_model("qwen3_next"))
    assert not result.records[0].result.changed


def test_a_model_without_scaling_stays():
    model = openvino_model("lfm2")
    model.ov_model.set_rt_info("0", ["runtime_options", "ACTIVATIONS_SCALE_FACTOR"])
    assert not PassManager([LowerVariadicSplit()]).run(model).records[0].result.changed
