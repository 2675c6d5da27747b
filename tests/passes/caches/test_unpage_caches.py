"""unpage-caches: models with PagedAttention run as batches of rows with growing caches."""

import json

import numpy
import onnx
import pytest
from onnx import helper
from support.models import exporters
from support.pipelines import run_passes

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Skipped
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.passes.caches.unpage_caches import UnpageCaches
from graphpass.passes.lower.lower_operators import LowerOperators
from graphpass.runtime import open_session


def paged() -> OnnxModel:
    model = load(exporters("builder-paged", "qwen3"))
    assert isinstance(model, OnnxModel)
    return model


def edited(edit) -> OnnxModel:
    model = paged()
    copy = onnx.ModelProto()
    copy.CopyFrom(model.proto)
    edit(copy.graph, next(node for node in copy.graph.node if node.op_type == "PagedAttention"))
    return OnnxModel(copy, model.path)


def feed(node: onnx.NodeProto, port: int, value: str) -> None:
    node.input.extend([""] * (port + 1 - len(node.input)))
    node.input[port] = value


def test_caches_grow_row_by_row():
    after, result = run_passes(paged(), UnpageCaches())
    assert result.statistics == {"caches unpaged": 4}
    caches = analyze_caches(after)
    assert caches.kind == "kv"
    assert {cache.shape for cache in caches.caches} == {("batch_size", 2, "past_sequence_length", 16)}
    ports = {cache.read for cache in caches.caches} | {cache.write for cache in caches.caches}
    shapes = {port.name: port.shape for port in (*after.inputs, *after.outputs) if port.name not in ports}
    assert shapes == {
        "input_ids": ("batch_size", "sequence_length"),
        "attention_mask": ("batch_size", "total_sequence_length"),
        "logits": ("batch_size", "sequence_length", 256),
    }


def test_tokens_are_those_of_pytorch():
    folder = exporters("builder-paged", "qwen3")
    reference = json.loads((folder / "reference.json").read_text())
    session = open_session(run_passes(load(folder), UnpageCaches())[0])
    logits, tokens = session.prefill(reference["prompt_ids"]), []
    for _ in reference["greedy_ids"]:
        tokens.append(int(logits[0, -1].argmax()))
        logits = session.step([tokens[-1]])
    assert tokens == reference["greedy_ids"]


def test_rows_may_be_padded():
    session = open_session(run_passes(paged(), UnpageCaches(), LowerOperators())[0])
    padded = session.prefill([[0, 0, 5, 9, 14], [1, 5, 9, 14, 20]], [[0, 0, 1, 1, 1], [1] * 5])[0, -1]
    numpy.testing.assert_allclose(padded, session.prefill([5, 9, 14])[0, -1], atol=0.02)


def test_optional_inputs_and_attributes_move_to_their_ports():
    def edit(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
        names = {"sink": [4], "query_norm": [16], "key_norm": [16]}
        for port, (name, shape) in zip((11, 12, 13), names.items(), strict=True):
            graph.initializer.append(onnx.numpy_helper.from_array(numpy.ones(shape, numpy.float16), name))
            feed(node, port, name)
        node.attribute.append(helper.make_attribute("qk_norm_epsilon", 0.25))

    after = run_passes(edited(edit), UnpageCaches())[0]
    first, second = after.graph.of_op("GroupQueryAttention")
    assert [port for port, value in enumerate(first.inputs) if value is None] == [9, 10, 12, 13]
    assert [first.source(port).name for port in (7, 8, 11, 14, 15)] == [
        "cos_cache", "sin_cache", "sink", "query_norm", "key_norm",
    ]  # fmt: skip
    assert first.attributes["qk_norm_epsilon"] == 0.25
    assert len(second.inputs) == 9


def slots(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    graph.input.append(helper.make_tensor_value_info("slots", onnx.TensorProto.INT32, ["num_tokens"]))
    feed(node, 10, "slots")


def scale(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.ones(1, numpy.float32), "scale"))
    feed(node, 14, "scale")


def bidirectional(_: onnx.GraphProto, node: onnx.NodeProto) -> None:
    node.attribute.append(helper.make_attribute("is_causal", 0))


def counted(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    graph.node.insert(0, helper.make_node("Add", [node.input[6], node.input[6]], ["twice"], name="counting"))
    feed(node, 6, "twice")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (slots, "it reads slots, which maps slots"),
        (scale, "it reads scale, which quantizes its caches"),
        (bidirectional, "it has is_causal = 0"),
        (counted, "counting computes from its lengths or blocks"),
    ],
)
def test_other_forms_are_refused(edit, reason):
    with pytest.raises(UnsupportedError, match=f"GP341: PagedAttention .* cannot be lowered: {reason}"):
        UnpageCaches().run(edited(edit))


def test_other_models_are_unchanged():
    assert isinstance(run_passes(load(exporters("builder-webgpu", "qwen3")), UnpageCaches())[1], Skipped)
