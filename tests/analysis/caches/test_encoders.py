"""Masks, outputs and inputs distinguish encoders from decoders without caches."""

import pytest

from graphpass.analysis.caches.encoders import filled_caches, is_encoder, is_pooled
from graphpass.testing import parse_model

MODEL = """%input_ids = Parameter : i64[b, n]
{setup}
%words = Constant : f32[9, 8]
%x = Gather(%words, %input_ids, 0)
%heads = Unsqueeze(%x, 1)
%y = ScaledDotProductAttention(%heads, %heads, %heads{mask})
%flat = Squeeze(%y, 1)
{ends}"""
SEQUENCE, POOLED = "Result(%flat) {name=logits}", "%mean = ReduceMean(%flat, [1])\nResult(%mean) {name=pooled}"


def model_of(setup="", mask="", ends=SEQUENCE, causal=False):
    text = MODEL.format(setup=setup, mask=mask, ends=ends)
    return parse_model(text.replace("%heads, %heads)", "%heads, %heads) {causal=true}") if causal else text, "openvino")


@pytest.mark.parametrize(
    ("given", "encoder", "pooled"),
    [
        ({}, True, False),
        ({"causal": True}, False, False),
        ({"ends": POOLED}, True, True),
        ({"ends": POOLED, "causal": True}, True, True),
        ({"ends": SEQUENCE.replace("logits", "last_hidden_state"), "causal": True}, True, False),
    ],
)
def test_encoders(given, encoder, pooled):
    model = model_of(**given)
    assert (is_encoder(model), is_pooled(model)) == (encoder, pooled)


def test_outputs_of_rank_4_may_be_caches_that_an_encoder_fills():
    assert not filled_caches(model_of())
    (filled,) = filled_caches(model_of(ends=SEQUENCE + "\nResult(%y) {name=present.key}"))
    assert filled.name == "present.key"
