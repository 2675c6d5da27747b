"""copy-shared-caches: each attention over a shared cache gets one of its own, which the CPU plugin fuses."""

from support.decode import compiled, fused_attention
from support.loaded import openvino_model
from support.pipelines import run_passes

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.caches.copy_shared_caches import CopySharedCaches
from graphpass.verify import compare


def shared(variant: str) -> OpenVINOModel:
    """The second layer reads keys and values of the first, and keeps none."""
    native = openvino_model("llama", variant).ov_model.clone()
    first, second = (op for op in native.get_ordered_ops() if op.get_type_name() == "ScaledDotProductAttention")
    for port in (1, 2):
        second.input(port).replace_source_output(first.input_value(port))
    for sink in native.get_sinks():
        if ".1." in sink.get_variable_id():
            native.remove_sink(sink)
            native.remove_variable(native.get_variable_by_id(sink.get_variable_id()))
    return OpenVINOModel(native)


def test_fused_by_the_cpu_plugin():
    model = shared("ov-stateful")
    assert fused_attention(compiled(model.ov_model.clone())) == 0
    after, result = run_passes(model, CopySharedCaches())
    assert result.statistics == {"caches copied": 2}
    assert [cache.name for cache in analyze_caches(after).caches] == [
        "past_key_values.0.keypresent.0.key",
        "past_key_values.0.valuepresent.0.value",
        "past_key_values.0.key.copy1present.0.key.copy1",
        "past_key_values.0.value.copy1present.0.value.copy1",
    ]
    assert fused_attention(compiled(after.ov_model.clone())) == 2
    assert compare(model, after, steps=4).passed


def test_models_without_shared_caches_stay():
    assert not run_passes(openvino_model("llama"), CopySharedCaches())[1].changed
