"""What the GPU plugin makes of the models that are made for it: it compiles each, in both forms."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from support.models import fixtures
from support.quick_cases import model_files

import graphpass
from graphpass.engine.pipeline import parse_target
from graphpass.targets import check_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gpu")]

#: What has no cache to go on with: encoders, and decoders for the first step alone.
OTHERS = ("encoder", "nocache", "/onnx/decoder_model.", "/ov-stateless/openvino_decoder_model.")

FILES = [file for file in model_files() if not any(part in file for part in OTHERS)]

#: The passes that let a caller edit caches, on whatever was exported.
EDITS = ["insert-reorder{form=cut}", "insert-reorder", "insert-reorder{trim=begin-one}", "insert-reorder{form=compact}"]


def fused(model):
    """Return the number of caches that became a ``kv_cache``, as predicted."""
    report = check_model(model, "gpu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    return sum(finding.verdict == "fused" for finding in report.findings)


@functools.cache
def fused_of_optimum(name):
    """As of the stateful export; each cache where optimum makes none."""
    exports = [file for file in FILES if file.startswith(f"{name}/ov-stateful/")]
    if exports:
        return fused(graphpass.load(fixtures() / exports[0]))
    file = next(file for file in FILES if file.startswith(f"{name}/"))
    return len(graphpass.analyze_caches(graphpass.load(fixtures() / file)).of_kind("kv"))


@pytest.mark.parametrize("file", FILES)
def test_both_forms_compile(file):
    """The beam form, and the reorder form that the plugin fuses, with as many caches in kernels as optimum's export."""
    source, expected = graphpass.load(fixtures() / file), fused_of_optimum(Path(file).parts[0])
    for text, count in (("gpu", expected), ("gpu{cache=reorder}", expected), ("gpu{cache=reorder,trim=slice}", 0)):
        made = graphpass.PassManager(parse_target(text).pipeline(source)).run(source).model
        assert (text, fused(made)) == (text, count)


@pytest.mark.parametrize("file", [file for file in FILES if "/ov-stateful" in file])
def test_predictions_of_edited_exports_are_confirmed(file):
    source = graphpass.load(fixtures() / file)
    for text in EDITS:
        report = check_model(graphpass.PassManager(graphpass.parse(text)).run(source).model, "gpu")
        assert report.confirmation.outcome == "confirmed", (text, report.confirmation.contradictions)
