"""Folders of an encoder and a decoder for ONNX Runtime: fused attention, and PyTorch's tokens from plain sessions."""

from __future__ import annotations

from collections import Counter

import numpy
import onnxruntime
import pytest
from support.commands import in_process
from support.models import export, reference
from support.sequence_to_sequence import encoder_input, merged

from graphpass import load

PARTS = ("encoder_model.onnx", "decoder_model.onnx")

#: Operators of attention in encoder and decoder. The CPU is slower with MultiHeadAttention for one query.
ON_CPU = {"MultiHeadAttention": 2}, {"GroupQueryAttention": 2, "Softmax": 2}
ON_GPU = {"MultiHeadAttention": 2}, {"GroupQueryAttention": 2, "MultiHeadAttention": 2}

CASES = [
    ("t5", "onnx", "ort", ON_CPU),
    # WebGPU's GroupQueryAttention does not add the bias of relative positions.
    ("t5", "merged", "ort{device=webgpu,precision=f32}", (ON_GPU[0], {"Softmax": 2, "MultiHeadAttention": 2})),
    pytest.param("whisper", "onnx", "ort", ({"Softmax": 2}, ON_CPU[1]), marks=pytest.mark.slow),
    pytest.param("whisper", "onnx", "ort{device=webgpu,precision=f32}", ON_GPU, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("model", "variant", "target", "attention"), CASES)
def test_attention_is_fused_and_tokens_equal_pytorch(capfd, tmp_path, model, variant, target, attention):
    source = merged(model, tmp_path / "in") if variant == "merged" else export(model, variant)
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", target)
    assert done.code == 0, done.err
    parts = [tmp_path / "out" / name for name in PARTS]
    kinds = [Counter(node.op for node in load(part).graph.nodes) for part in parts]
    assert [{op: count[op] for op in own} for count, own in zip(kinds, attention, strict=True)] == list(attention)
    expected = reference(model)
    sessions = [onnxruntime.InferenceSession(part) for part in parts]
    assert _greedy(*sessions, encoder_input(model), expected["decoder_start_token_id"]) == expected["greedy_ids"]


def _greedy(encoder, decoder, feeds, start):
    """Generate 12 tokens; the encoder's outputs are the caches of cross attention."""
    encoded = dict(zip([port.name for port in encoder.get_outputs()], encoder.run(None, feeds), strict=True))
    ports = {port.name: port for port in decoder.get_inputs()}
    caches = {name: encoded[name.replace("past_key_values", "present")] for name in ports if ".encoder." in name}
    for name in ports:
        if ".decoder." in name:
            caches[name] = numpy.zeros((1, ports[name].shape[1], 0, ports[name].shape[3]), numpy.float32)
    if "encoder_attention_mask" in ports:
        caches["encoder_attention_mask"] = feeds["attention_mask"]
    chosen = [start]
    for _ in range(12):
        made = decoder.run(None, {"input_ids": numpy.array([chosen[-1:]]), **caches})
        results = dict(zip([port.name for port in decoder.get_outputs()], made, strict=True))
        chosen.append(int(results["logits"][0, -1].argmax()))
        caches |= {name.replace("present", "past_key_values"): results[name] for name in results if "present" in name}
    return chosen[1:]
