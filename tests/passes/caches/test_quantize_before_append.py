"""quantize-before-append: caches of rounded keys, which the CPU plugin fuses with attention."""

import pytest
from support.decode import compiled, fused_attention
from support.loaded import openvino_model
from support.pipelines import run_passes
from support.rounded_keys import with_rounded_keys

from graphpass.passes.caches.quantize_before_append import QuantizeBeforeAppend
from graphpass.targets import check_model
from graphpass.verify import compare


def test_the_cpu_plugin_fuses_rounded_keys():
    model = with_rounded_keys()
    assert fused_attention(compiled(model.ov_model.clone())) == 0
    after, result = run_passes(model, QuantizeBeforeAppend())
    assert result.statistics == {"caches of rounded numbers": 2}
    assert fused_attention(compiled(after.ov_model.clone())) == 2
    assert check_model(after, "cpu").holds


@pytest.mark.parametrize("transposed", [False, True])
def test_results_are_equal(transposed):
    model = with_rounded_keys(transposed=transposed)
    found = compare(model, run_passes(model, QuantizeBeforeAppend())[0], steps=4)
    assert found.passed, found.summary()
    assert found.max_abs_difference < 1e-4


def test_models_without_quantizers_are_unchanged():
    assert not run_passes(openvino_model("llama", "ov-stateful"), QuantizeBeforeAppend())[1].changed
