"""Encoders and decoders beside others: hidden states, then logits of each step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.models import export

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.encoder_decoder import find_encoder_decoder, read_parts
from graphpass.testing import parse_model
from graphpass.verify.encoder_decoder import compare_encoder_decoders


def parts(form: str = "onnx"):
    return read_parts(find_encoder_decoder(export("t5", form)))


def doubled(model, output: str):
    copy = model.clone()
    rewriter = copy.rewriter()
    result = copy.graph.writes[output]
    write = rewriter.under("fault")
    rewriter.redirect(result, 0, write.op("Multiply", result.source(), write.number(2.0, "f32")))
    rewriter.finish()
    return copy


def test_exports_of_one_model_are_the_same():
    found = compare_encoder_decoders(parts(), parts("ov-stateful"), steps=2)
    assert found.passed
    assert found.outputs == ("last_hidden_state", "logits")
    assert [(len(run.prompt_ids), len(run.prompt_ids[0]), run.steps) for run in found.sequences] == [
        (1, 1, 2),
        (1, 4, 2),
        (2, 2, 2),
    ]
    assert all(run.reference_ids == run.candidate_ids for run in found.sequences)
    assert len(found.sequences[0].reference_ids[0]) == 3


def test_hidden_states_are_compared_before_logits():
    models = parts()
    found = compare_encoder_decoders(
        models, replace(models, encoder=doubled(models.encoder, "last_hidden_state")), steps=1
    )
    assert (found.divergence.output, found.divergence.sequence, found.divergence.step) == ("last_hidden_state", 0, 0)
    assert found.sequences[0].reference_ids == ()


def test_a_fault_of_later_steps_is_found_there():
    models = parts()
    found = compare_encoder_decoders(models, replace(models, decoder=doubled(models.decoder, "logits")), steps=2)
    assert (found.divergence.output, found.divergence.sequence, found.divergence.step) == ("logits", 0, 1)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(UsageError) as error:
        compare_encoder_decoders(parts(), parts(), steps=-1)
    assert error.value.id == "GP250"


def test_inputs_of_other_types_are_refused():
    models = parts()
    text = "%input_ids = Parameter : i64[b, n]\n%more = Parameter : boolean[b, n]\n%y = Select(%more, %input_ids, 0)\n"
    encoder = parse_model(f"{text}%z = Convert(%y) {{to=f32}}\nResult(%z) {{name=last_hidden_state}}")
    with pytest.raises(UnsupportedError, match=r"cannot generate input more \[b, n\] of type boolean") as error:
        compare_encoder_decoders(replace(models, encoder=encoder), models)
    assert error.value.id == "GP347"
