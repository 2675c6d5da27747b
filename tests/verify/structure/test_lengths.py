"""Inputs that state lengths of the step."""

from __future__ import annotations

from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from support.loaded import converted, exported, run_once

from graphpass.verify.structure.proof import compare_structures


def test_shape_assumptions_of_a_proof_are_stated():
    reference = exported("mamba/ov-stateful")
    found = compare_structures(reference, converted(reference).model)
    assert found is not None
    assert found.equal == found.operators > 0
    assert found.assumed == ("attention_mask has the shape [batch, new tokens]",)
    assert next(found.in_words()).startswith(f"equal for every input, given that {found.assumed[0]}: ")
    llama = exported("llama/ov-stateful")
    found = compare_structures(llama, converted(llama).model)
    assert found is not None
    assert found.assumed == ()


def test_an_input_with_the_past_equals_the_input_of_the_step():
    reference = exported("whisper/onnx/decoder_with_past_model.onnx")
    found = compare_structures(reference, converted(reference, "cpu{cache=reorder}").model)
    assert found is not None
    assert found.equal == found.operators > 0
    assert "past_len is the number of positions before the step" in found.assumed


def test_a_number_of_logits_to_keep_is_0():
    llama = exported("llama/onnx")
    found = compare_structures(llama, run_once(llama, "last-logits{count=input}").model)
    assert found is not None
    assert found.equal == found.operators > 0
    assert found.assumed == ("num_logits_to_keep is 0",)
