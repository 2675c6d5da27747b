"""The pass `count-new-tokens`: batches take several tokens after a past, by the numbers of their rows."""

from __future__ import annotations

import numpy
import onnx_graphsurgeon as gs
import pytest
from support.loaded import converted, exported, onnx_model, run_once
from support.reference_tokens import generates_reference_tokens

import graphpass
from graphpass.analysis.caches.step_tokens import find_step_tokens
from graphpass.errors import UnsupportedError
from graphpass.ir.operators import NEW_TOKENS
from graphpass.runtime import open_session
from graphpass.verify import compare

#: Each row's tokens in two steps; 0 in the masks stands for padding.
IDS = numpy.array([[5, 9, 17, 3, 21, 33, 4], [8, 2, 40, 7, 11, 50, 6]])


def counted(name: str, options: str, variant: str = "onnx"):
    return converted(exported(f"{name}/{variant}"), f"ort{{batch=any,{options}}}")


def fed(model, mask):
    """Return logits of a prompt of 4 tokens and a step of 3, as a session feeds them."""
    session = open_session(model)
    parts = [(ids, mask[:, : ids.shape[1] + place]) for place, ids in ((0, IDS[:, :4]), (4, IDS[:, 4:]))]
    return numpy.concatenate([session.forward(ids, seen)["logits"].copy() for ids, seen in parts], axis=1)


def takes_several(model) -> bool:
    return not find_step_tokens(model, graphpass.analyze_caches(model)).rows_one_by_one


@pytest.mark.parametrize(
    ("options", "padding"),
    [
        ("padding=any", [0, 0, 1, 1, 1, 1, 1]),
        ("padding=any", [1, 1, 1, 0, 1, 1, 0]),
        ("padding=right", [1, 1, 1, 0, 1, 1, 0]),
        ("padding=right", [1, 1, 0, 0, 1, 0, 0]),
    ],
)
def test_rows_of_different_length_continue_with_several_tokens(options, padding):
    mask = numpy.array([[1] * 7, padding])
    result = counted("llama", options).model
    assert takes_several(result)
    wanted, found = fed(exported("llama/onnx"), mask), fed(result, mask)
    assert numpy.allclose(wanted[mask > 0], found[mask > 0], atol=1e-4)


def test_layers_share_the_numbers():
    result = counted("gemma3_text", "padding=right")
    attention = list(result.model.graph.of_op("GroupQueryAttention"))
    assert len({node.input(NEW_TOKENS) for node in attention}) == 1
    assert result.records[-1].result.statistics == {"attention counted": 4}
    again = run_once(result.model, "count-new-tokens")
    assert not again.records[-1].result.changed


@pytest.mark.parametrize("name", ["gpt_oss", *(pytest.param(one, marks=pytest.mark.slow) for one in ("phi3", "gpt2"))])
@pytest.mark.parametrize("padding", ["any", "right"])
def test_decoders_compute_the_same(name, padding):
    result = counted(name, f"padding={padding}").model
    assert generates_reference_tokens(result, name)
    side = "left" if padding == "any" else "right"
    assert compare(exported(f"{name}/onnx"), result, steps=4, edits=True, padding=side).passed


def test_models_of_the_builder_support_several_tokens():
    model = exported("llama/onnx-genai")
    result = run_once(model, "count-new-tokens").model
    assert takes_several(result)
    assert not takes_several(model)
    mask = numpy.array([[1] * 7, [1, 1, 1, 0, 1, 1, 0]])
    assert numpy.allclose(fed(model, mask)[mask > 0], fed(result, mask)[mask > 0], atol=1e-4)
    assert compare(model, result, steps=4, edits=True).passed


def test_caches_in_integers_support_several_tokens():
    result = counted("llama", "cache-precision=i8").model
    assert takes_several(result)
    assert compare(exported("llama/onnx"), result, steps=4, edits=True).passed


def test_padding_in_front_is_found_misread_with_right():
    assert not compare(exported("llama/onnx"), counted("llama", "padding=right").model, steps=1).passed


def test_a_wrong_number_is_found():
    model = counted("llama", "padding=right").model.clone()
    with model.graphsurgeon() as graph:
        for node in [node for node in graph.nodes if node.op == "GroupQueryAttention"]:
            fewer = gs.Variable(f"{node.name}_fewer", numpy.int32)
            least = [node.inputs[NEW_TOKENS], gs.Constant(f"{node.name}_two", numpy.array([2], numpy.int32))]
            graph.nodes.append(gs.Node("Min", inputs=least, outputs=[fewer]))
            node.inputs[NEW_TOKENS] = fewer
        graph.toposort()
    assert not compare(exported("llama/onnx"), model, steps=4, padding="right").passed


def test_a_mask_as_a_bias_stays_with_the_reason():
    result = counted("bloom", "padding=any")
    assert not result.records[-1].result.changed
    assert "the kernel does not support query_seqlens with a mask as a bias" in result.records[-1].result.notes[0]
    assert not takes_several(result.model)


@pytest.mark.parametrize(("device", "taken"), [("cuda", True), ("dml", False), ("webgpu", False)])
def test_providers_without_a_kernel_stay(device, taken):
    result = converted(exported("llama/onnx"), f"ort{{batch=any,device={device}}}")
    assert takes_several(result.model) == taken


def test_other_lengths_stay():
    model = run_once(exported("llama/onnx"), "fuse-group-query-attention{context=64}").model.clone()
    with model.graphsurgeon() as graph:
        given = gs.Variable("lengths", numpy.int32, ["batch_size"])
        graph.inputs.append(given)
        for node in [node for node in graph.nodes if node.op == "GroupQueryAttention"]:
            node.inputs[5] = given
    result = run_once(model, "count-new-tokens")
    assert not result.records[-1].result.changed
    assert "its lengths are lengths, not a sum of attention_mask" in result.records[-1].result.notes[0]


def test_a_model_without_tokens_is_refused():
    model = run_once(onnx_model("llama"), "fuse-group-query-attention{context=64}").model.clone()
    with model.graphsurgeon() as graph:
        graph.inputs[0].name = "words"
    with pytest.raises(UnsupportedError, match="the model has no input input_ids or inputs_embeds"):
        run_once(model, "count-new-tokens")


@pytest.mark.parametrize("padding", ["any", "right"])
def test_counted_tokens_are_lowered_for_openvino(padding):
    source = counted("llama", f"padding={padding}").model
    result = converted(source, "cpu").model
    assert compare(exported("llama/onnx"), result, steps=4, padding="left").passed
