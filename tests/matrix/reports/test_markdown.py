"""Tables and annotations in Markdown, with names escaped."""

from dataclasses import replace

from matrix.cells import OTHERS, ROOT, WARNED, cell, failed, run_of

from graphpass.matrix.reports.markdown import as_annotations, as_markdown


def test_markdown_holds_tables_of_cells():
    text = as_markdown(run_of(failed(1, node="a|b*c"), *OTHERS))
    assert "| model | cpu | npu |\n| --- | --- | --- |\n| `m` | ❌ failed |  |\n| `good` |  | ✅ converted |" in text
    assert "| `m:cpu` | GP350 | a&#124;b&#42;c0 is not fused: 0 ms |" in text
    assert len(as_markdown(run_of(failed(15_000))).encode()) <= 1 << 20


def test_names_are_escaped_in_markdown_and_logs():
    named = failed(1, node="a<img src=x onerror=1>\x1b]0;owned\x07`b` [l](x)\n::error::forged")
    run = run_of(replace(named, cell=cell("m`<b>x</b>|y")))
    text = as_markdown(run)
    assert "<img" not in text
    assert "<b>" not in text
    assert "\x1b" not in text
    (row,) = [line for line in text.splitlines() if "GP350" in line]
    assert row.count(" | ") == 2
    (line,) = as_annotations(run, ROOT).splitlines()
    assert line.startswith("::error file=")
    assert "\x1b" not in line


def test_annotations_are_limited_and_escaped():
    result = replace(failed(60), file="/src/models/a,b.onnx")
    lines = as_annotations(run_of(result, WARNED), ROOT).splitlines()
    assert len(lines) == 50
    assert lines[0] == (
        "::error file=models/a%2Cb.onnx,title=GP350 m%3Acpu::node0 is not fused: 0 ms%0Ahint: try again"
    )
    (warning,) = as_annotations(run_of(WARNED), ROOT).splitlines()
    assert warning.startswith("::warning file=/elsewhere/warned.onnx,title=GP350 warned%3Acpu::a is not fused")
