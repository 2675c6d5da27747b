"""Folders of an encoder and its decoders, made for GPUs: both parts compile there, and compute what the CPU does."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from support.gpu_on_cpu import Recorder, replay
from support.models import export, reference
from support.sequence_to_sequence import Generator, encoder_input, merged

import graphpass
from graphpass.cli.main import main
from graphpass.targets import check_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gpu")]

PARTS = ("encoder", "decoder")

#: Largest difference, relative to the largest number; see `test_gpu_numbers`.
TOLERANCE = 2e-3


def converted(model: str, variant: str, folder: Path) -> Path:
    source = merged(model, folder / "in") if variant == "merged" else export(model, variant)
    options = ["-o", str(folder / "out"), "--target", "gpu", "--no-verify"]
    assert main(["--quiet", "convert", str(source), *options]) == 0
    return folder / "out"


@pytest.mark.parametrize("variant", ["onnx", "merged", "ov-stateless", "ov-stateful"])
@pytest.mark.parametrize("model", ["t5", "whisper"])
def test_both_parts_compile(model, variant, tmp_path):
    folder = converted(model, variant, tmp_path)
    optimum = check_model(graphpass.load(export(model, "ov-stateful") / "openvino_decoder_model.xml"), "gpu")
    counts = []
    for part in PARTS:
        report = check_model(graphpass.load(folder / f"openvino_{part}_model.xml"), "gpu")
        assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
        assert report.holds
        counts.append([finding.verdict for finding in report.findings].count("fused"))
    assert counts == [0, [finding.verdict for finding in optimum.findings].count("fused")]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("model", ["t5", "whisper"])
def test_encoder_and_decoder_compute_the_same_as_on_the_cpu(model, part, tmp_path, monkeypatch):
    """Of an encoder its states; of a decoder, whose cross attention is computed once, three steps with beams."""
    folder, given = converted(model, "onnx", tmp_path), encoder_input(model)
    generator = Generator(folder)
    if part == "encoder":
        recorder, output = Recorder(generator.encoder.create_infer_request()), "last_hidden_state"
        expected = [recorder.infer(given)[output].copy()]
    else:
        generator.request = recorder = Recorder(generator.request)
        output = "logits"
        generator.start(given, copies=2)
        start = reference(model)["greedy_ids"][0]
        steps = (([[start]] * 2, [0, 1]), ([[9], [4]], [1, 1]), ([[7], [8]], [1, 0]))
        expected = [generator.step(ids, beams)[:, None] for ids, beams in steps]
    made = graphpass.load(folder / f"openvino_{part}_model.xml")
    for found, right in zip(replay(made, recorder, monkeypatch, output), expected, strict=True):
        numpy.testing.assert_allclose(found, right, atol=TOLERANCE * abs(right).max())
