"""Trials on OpenVINO's CPU plugin."""

from graphpass.targets.cpu.trial import observe
from graphpass.testing import run, tiny_model


def test_fused_attention_is_named():
    decomposed = tiny_model("llama", "stateful")
    assert observe(decomposed).fused == frozenset()
    fused = run(tiny_model("llama", "openvino"), "fuse-attention,make-stateful")
    found = observe(fused)
    assert found.refused is None
    assert found.tried.startswith("compiled on the CPU plugin, openvino ")
    assert {node.name for node in fused.graph.of_op("ScaledDotProductAttention")} <= found.fused
