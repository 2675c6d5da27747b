"""Pages on conversions: each model before and after its pipeline."""

from pathlib import Path

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.reports.conversion import as_page, models_as_parts
from graphpass.reports.outcome import ModelReport, Outcome
from graphpass.testing import tiny_model

HOSTILE = "<script>alert(1)</script>"


def report(name=""):
    before, passes = tiny_model("llama", layers=1), parse("to-openvino,fuse-attention")
    result = PassManager(passes).run(before)
    return ModelReport(name, "openvino_model.xml", before, result.model, passes, result.records, ())


def test_a_page_has_the_report_and_a_picture():
    made = report()
    outcome = Outcome(Path("in.onnx"), Path("out"), (Path("out/a.xml"),), (), "cpu", models=(made,))
    page = as_page(outcome, models_as_parts([made]))
    assert "<h1" in page
    assert "in.onnx \u2192 cpu" in page
    assert '"titles":["before","after"]' in page
    assert "pipeline  to-openvino,fuse-attention" in page
    assert "ScaledDotProductAttention" in page


def test_parts_have_headings_and_names_are_escaped():
    parts = models_as_parts([report("encoder"), report(HOSTILE)])
    assert parts[0] == "<h2>encoder</h2>"
    assert not any(HOSTILE in part for part in parts)
    plain = Outcome(Path(HOSTILE), Path("out"), (Path("out/a.xml"),), ())
    assert HOSTILE not in as_page(plain, [])
    assert "\u2192 a.xml" in as_page(plain, [])
