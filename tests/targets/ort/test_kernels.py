"""Operators without a kernel of the CPU provider are predicted, and ONNX Runtime refuses them."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.targets import check_model
from graphpass.targets.ort.kernels import without_kernel

_OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]


def paged_attention() -> OnnxModel:
    """Return attention over keys and values in blocks, as onnxruntime-genai's builder writes it for CUDA."""
    blocks = ["blocks", 16, 2, 16]
    inputs = {
        "query": (TensorProto.FLOAT16, ["tokens", 64]),
        "key": (TensorProto.FLOAT16, ["tokens", 32]),
        "value": (TensorProto.FLOAT16, ["tokens", 32]),
        "past_key_values.0.key": (TensorProto.FLOAT16, blocks),
        "past_key_values.0.value": (TensorProto.FLOAT16, blocks),
        "cumulative_sequence_lengths": (TensorProto.INT32, ["rows + 1"]),
        "past_sequence_lengths": (TensorProto.INT32, ["rows"]),
        "block_table": (TensorProto.INT32, ["rows", "most"]),
    }
    outputs = {
        "result": (TensorProto.FLOAT16, ["tokens", 64]),
        "present.0.key": (TensorProto.FLOAT16, blocks),
        "present.0.value": (TensorProto.FLOAT16, blocks),
    }
    node = helper.make_node(
        "PagedAttention", [*inputs], [*outputs], "paged", domain="com.microsoft", num_heads=4, kv_num_heads=2
    )
    ports = [[helper.make_tensor_value_info(name, *kind) for name, kind in side.items()] for side in (inputs, outputs)]
    graph = helper.make_graph([node], "graph", *ports)
    return OnnxModel(helper.make_model(graph, opset_imports=_OPSETS, ir_version=10))


def test_paged_attention_is_refused():
    report = check_model(paged_attention(), "ort")
    (finding,) = [finding for finding in report.findings if not finding.holds]
    assert (finding.verdict, finding.node) == ("refused", "paged")
    assert "the CPU provider has no kernel of PagedAttention" in finding.reason
    assert report.confirmation.outcome == "confirmed"


def test_caches_in_blocks_are_no_kv_caches():
    caches = analyze_caches(paged_attention()).caches
    assert {(cache.kind, cache.role, cache.axes.heads, cache.axes.head_dim) for cache in caches} == {
        ("unknown", "key", 2, 3),
        ("unknown", "value", 2, 3),
    }
    assert all("appended to blocks, ordered by block_table, inside" in cache.evidence[-1] for cache in caches)


@pytest.mark.parametrize(("operator", "missing"), [("Gelu", []), ("BiasSplitGelu", ["BiasSplitGelu"])])
def test_kernels_are_those_of_the_installed_runtime(operator, missing):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    node = helper.make_node(operator, ["x"], ["y"], domain="com.microsoft")
    graph = helper.make_graph([node], "graph", inputs, outputs)
    model = OnnxModel(helper.make_model(graph, opset_imports=_OPSETS, ir_version=10))
    assert list(without_kernel(model)) == missing
