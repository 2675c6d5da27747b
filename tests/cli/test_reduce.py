"""graphpass reduce prints or writes the smallest case that fails."""

import pytest
from support.commands import in_process

from graphpass.io import save
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[n, 4]\n%a = Exp(%x)\n%b = Tanh(%a)\nResult(%b) {name=y}"


@pytest.fixture
def model(tmp_path):
    save(parse_model(TEXT), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_the_case_is_printed(capfd, model):
    done = in_process(capfd, "reduce", model, "-p", "make-stateful", "--keeps", "GP301")
    assert done.code == 0
    assert done.out.startswith("// RUN: make-stateful\n// DIALECT: onnx 21\n// KEEPS: GP301\n")
    assert "1 passes left" in done.err


def test_the_case_is_written(capfd, model, tmp_path):
    done = in_process(capfd, "reduce", model, "-p", "make-stateful", "--keeps", "GP301", "-o", tmp_path / "case")
    assert done.out.endswith(f"{tmp_path / 'case'}\n")
    assert (tmp_path / "case").read_text().startswith("// RUN: make-stateful\n")


def test_a_pipeline_that_does_not_fail_is_refused(capfd, model, tmp_path):
    done = in_process(capfd, "reduce", model, "-p", "fuse-functions", "-o", tmp_path / "case")
    assert (done.code, done.err[:12]) == (2, "error: GP275")
    assert not (tmp_path / "case").exists()
    assert in_process(capfd, "reduce", model).code == 2
