"""Sessions of an encoder and its decoder, against the tokens of PyTorch."""

from __future__ import annotations

import numpy
import pytest
from support.models import export, reference
from support.sequence_to_sequence import encoder_input, merged

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.encoder_decoder import EncoderDecoderModels, EncoderDecoderSession
from graphpass.runtime.encoder_decoder import find_encoder_decoder, read_parts
from graphpass.testing import parse_model


def opened(folder) -> EncoderDecoderSession:
    return EncoderDecoderSession(read_parts(find_encoder_decoder(folder)))


def greedy(session: EncoderDecoderSession, start: int, count: int) -> list[int]:
    chosen = [start]
    while len(chosen) <= count:
        chosen.append(int(session.step(numpy.array([chosen[-1:]]))[0, -1].argmax()))
    return chosen[1:]


@pytest.mark.parametrize("form", ["onnx", "merged", "ov-stateful"])
def test_tokens_are_those_of_pytorch(form, tmp_path):
    session = opened(merged("t5", tmp_path / "t5") if form == "merged" else export("t5", form))
    wanted = reference("t5")["greedy_ids"]
    for _ in range(2):  # the second time after a reset
        hidden = session.start(encoder_input("t5"))
        assert hidden.shape[:2] == encoder_input("t5")["input_ids"].shape
        assert greedy(session, 0, len(wanted)) == wanted


def test_inputs_that_no_rule_feeds_are_refused():
    models = read_parts(find_encoder_decoder(export("t5", "onnx")))
    text = "%input_ids = Parameter : i64[b, n]\n%more = Parameter : i64[b, n]\n%y = Add(%input_ids, %more)\n"
    decoder = parse_model(f"{text}%z = Convert(%y) {{to=f32}}\nResult(%z) {{name=logits}}")
    session = EncoderDecoderSession(EncoderDecoderModels(models.encoder, decoder, None))
    with pytest.raises(UnsupportedError, match=r"what to feed to input more \[b, n\] of a decoder") as error:
        session.step(numpy.array([[1]]))
    assert error.value.id == "GP320"
