"""Encoders and decoders of one model, compared as expressions in the first step and in later ones."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from support.models import export

from graphpass import convert
from graphpass.runtime.encoder_decoder import find_encoder_decoder, read_parts
from graphpass.verify.structure.encoder_decoders import compare_parts

KEYS = "past_key_values.0.encoder.key"


def parts(folder):
    return read_parts(find_encoder_decoder(folder))


@pytest.fixture(scope="module")
def reference():
    return parts(export("t5", "ov-stateless"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A decoder that computes cross caches as the initial values of variables."""
    folder = tmp_path_factory.mktemp("stateful")
    convert(export("t5", "ov-stateless"), folder, "cpu", verify=False)
    return folder


@pytest.fixture(scope="module")
def stateful(written):
    return parts(written)


@pytest.fixture(scope="module")
def exported():
    return parts(export("t5", "onnx"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """An encoder that computes cross caches."""
    folder = tmp_path_factory.mktemp("filled")
    convert(export("t5", "onnx"), folder, "ort", verify=False)
    return parts(folder)


def halved(model, kind: str, name: str, port: int = 0):
    """Return the model with half of the values that a node reads."""
    copy = model.clone()
    rewriter = copy.rewriter()
    node = next(node for node in copy.graph.of_op(kind) if node.name.startswith(name))
    write = rewriter.under("fault")
    half = write.op("Multiply", node.source(port), write.number(0.5, node.source(port).element_type))
    rewriter.redirect(node, port, half)
    rewriter.finish()
    return copy


def test_decoders_of_first_and_later_steps_equal_one_with_variables(reference, stateful):
    proof = compare_parts(reference, stateful)
    assert proof.is_complete_with_padding
    assert "caches of cross attention are equal in all rows that continue one sequence" in proof.assumed


def test_sizes_that_variables_do_not_declare_are_those_of_the_caches(reference, written, tmp_path):
    shutil.copytree(written, tmp_path / "model")
    file = tmp_path / "model" / "openvino_decoder_model.xml"
    text, count = re.subn(r'(variable_id="[^"]*encoder[^"]*" [^>]*variable_shape=")\?,2,', r"\1?,?,", file.read_text())
    assert count == 4
    file.write_text(text)
    assert compare_parts(reference, parts(tmp_path / "model")).is_complete_with_padding


def test_decoders_of_first_and_later_steps_equal_one_whose_encoder_fills_the_caches(exported, filled):
    assert compare_parts(exported, filled).is_complete_with_padding


def test_branches_of_a_merged_decoder_are_both_steps(tmp_path, filled):
    for name in ("encoder_model.onnx", "decoder_model_merged.onnx"):
        shutil.copy(export("t5", "onnx") / name, tmp_path)
    assert compare_parts(parts(tmp_path), filled).is_complete_with_padding


def test_equal_forms_are_compared_part_by_part(exported, stateful, filled):
    for models in (exported, stateful, filled):
        assert compare_parts(models, models).is_complete_with_padding


def test_one_decoder_has_no_counterpart_of_two(exported, filled):
    assert compare_parts(filled, exported) is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param("ReadValue", KEYS, id="initial keys of cross attention"),
        pytest.param("Assign", KEYS, id="keys of cross attention after a step"),
        pytest.param("Assign", "present.0.decoder.key", id="keys of the decoder"),
        pytest.param("Result", "logits", id="logits"),
    ],
)
def test_a_fault_of_a_decoder_with_variables_is_not_proven(reference, stateful, kind, name):
    faulty = replace(stateful, decoder=halved(stateful.decoder, kind, name))
    assert not compare_parts(reference, faulty).is_complete


@pytest.mark.parametrize("name", ["last_hidden_state", "present.1.encoder.value"])
def test_a_fault_of_an_encoder_is_not_proven(exported, filled, name):
    faulty = replace(filled, encoder=halved(filled.encoder, "Result", name))
    assert not compare_parts(exported, faulty).is_complete


@pytest.mark.parametrize("name", ["logits", "present.1.decoder.value", "present.0.encoder.key"])
def test_a_difference_of_the_first_step_alone_is_not_proven(exported, filled, name):
    other = replace(exported, first=halved(exported.first, "Result", name))
    assert not compare_parts(other, filled).is_complete


def test_a_missing_cache_is_not_proven(exported, filled):
    copy = filled.encoder.clone()
    rewriter = copy.rewriter()
    rewriter.drop([copy.graph.writes["present.0.encoder.key"]])
    rewriter.finish()
    assert not compare_parts(exported, replace(filled, encoder=copy)).is_complete
