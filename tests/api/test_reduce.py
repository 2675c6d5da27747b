"""graphpass.reduce, bundle and replay as functions."""

import pytest

import graphpass
from graphpass.errors import ReadError, UsageError
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[n, 4]\n%a = Exp(%x)\n%b = Tanh(%a)\nResult(%b) {name=y}"


def test_a_model_is_reduced_bundled_and_replayed(tmp_path):
    graphpass.save(parse_model(TEXT), tmp_path / "m.onnx")
    for model in (parse_model(TEXT), tmp_path / "m.onnx"):
        reduction = graphpass.reduce(model, "make-stateful", "GP301")
        assert reduction.case.nodes <= 1
        graphpass.bundle(reduction.case, tmp_path / "a.zip")
        assert graphpass.replay(tmp_path / "a.zip").startswith("GP301: ")


def test_passes_may_be_objects(tmp_path):
    passes = graphpass.parse("make-stateful")
    graphpass.bundle(parse_model(TEXT), tmp_path / "a.zip", passes, "GP301")
    (tmp_path / "case.graph").write_text(str(graphpass.reduce(parse_model(TEXT), passes, "GP301").case))
    graphpass.bundle(tmp_path / "case.graph", tmp_path / "b.zip")
    assert graphpass.replay(tmp_path / "b.zip") is not None


def test_pipelines_that_do_not_fail_are_refused(tmp_path):
    with pytest.raises(UsageError) as error:
        graphpass.reduce(parse_model(TEXT), "fuse-functions", "different")
    assert error.value.id == "GP275"
    with pytest.raises(ReadError) as error:
        graphpass.replay(tmp_path / "none.zip")
    assert error.value.id == "GP101"
