"""Consumers that pair pasts and presents by order."""

from support.loaded import onnx_model
from targets.consumers.views import view


def test_consumers_that_pair_by_order_misread_reordered_outputs():
    model = onnx_model("llama").clone()
    outputs = list(model.proto.graph.output)
    del model.proto.graph.output[:]
    model.proto.graph.output.extend([outputs[0], outputs[2], outputs[1], *outputs[3:]])
    model.mark_edited()
    for consumer in ("optimum-intel", "ONNX Runtime OpenVINO EP"):
        found = view(model, consumer)
        assert found.verdict == "misreads"
        pairs = "past_key_values.0.key with present.0.value, because it pairs by order, and so on (2 in all)"
        assert found.reasons[0] == f"will pair {pairs}"
    assert view(model, "onnxruntime-genai").verdict == "agrees"
