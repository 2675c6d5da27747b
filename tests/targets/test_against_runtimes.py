"""What is predicted of real models, held against what the runtimes do with them: none may be contradicted."""

from __future__ import annotations

import functools

import pytest
from support.files import model_files
from support.models import fixtures

import graphpass
from graphpass.errors import UnsupportedError
from graphpass.targets import check_model

FILES = model_files()

IRS = [file for file in FILES if file.endswith(".xml")]

#: Models whose conversion is checked as well.
CONVERTED = [file for file in FILES if "encoder_model" not in file and "nocache" not in file]

#: Takes long and has no form that a shallow one does not have.
_DEEP = [pytest.mark.slow]


@functools.cache
def source(file: str) -> graphpass.Model:
    return graphpass.load(fixtures() / file)


@functools.cache
def converted(file: str, target: str) -> graphpass.Model:
    model = source(file)
    try:
        return graphpass.PassManager(graphpass.get_target(target).pipeline(model)).run(model).model
    except UnsupportedError as error:
        pytest.skip(f"cannot be converted: {error.id}")


def assert_not_contradicted(model: graphpass.Model, target: str) -> None:
    report = check_model(model, target)
    assert report.confirmation is not None
    assert report.confirmation.outcome != "contradicted", report.confirmation.contradictions


@pytest.mark.parametrize("target", ["cpu", "paged"])
@pytest.mark.parametrize("file", IRS)
def test_predictions_come_true(file, target):
    assert_not_contradicted(source(file), target)


@pytest.mark.parametrize("target", ["cpu", "paged"])
@pytest.mark.parametrize("file", [pytest.param(file, marks=_DEEP * ("llama_12l" in file)) for file in CONVERTED])
def test_predictions_of_converted_models_come_true(file, target):
    assert_not_contradicted(converted(file, target), target)


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".onnx")])
def test_predictions_of_onnx_runtime_come_true(file):
    assert_not_contradicted(source(file), "ort")


@pytest.mark.slow
@pytest.mark.parametrize("file", IRS)
def test_predictions_of_npuw_come_true(file):
    assert_not_contradicted(source(file), "npu")


@pytest.mark.slow
@pytest.mark.parametrize("file", CONVERTED)
def test_predictions_of_npuw_of_converted_models_come_true(file):
    assert_not_contradicted(converted(file, "npu"), "npu")


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("file", IRS)
def test_predictions_of_the_gpu_plugin_come_true(file):
    assert_not_contradicted(source(file), "gpu")
