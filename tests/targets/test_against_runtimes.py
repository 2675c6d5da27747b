"""What is predicted of real models, held against what the runtimes do with them: none may be contradicted."""

from __future__ import annotations

import pytest
from support.loaded import converted, exported
from support.quick_cases import model_files, quick_subset

import graphpass
from graphpass.errors import UnsupportedError
from graphpass.targets import check_model

FILES = model_files()

IRS = [file for file in FILES if file.endswith(".xml")]

#: Models whose conversion is checked as well.
CONVERTED = [file for file in FILES if "encoder_model" not in file and "nocache" not in file]

TARGETS = ("cpu", "paged")


def crossed(files: list[str]) -> list[object]:
    """All files with both targets; quick are each model with one of the two, and each variant with both."""
    cases = [(file, target) for file in files for target in TARGETS]
    return quick_subset(
        cases, lambda file, target: file.split("/")[0], lambda file, target: (file.split("/")[1], target)
    )


def converted_model(file: str, target: str) -> graphpass.Model:
    try:
        return converted(exported(file), target).model
    except UnsupportedError as error:
        pytest.skip(f"cannot be converted: {error.id}")


def assert_not_contradicted(model: graphpass.Model, target: str) -> None:
    report = check_model(model, target)
    assert report.confirmation is not None
    assert report.confirmation.outcome != "contradicted", report.confirmation.contradictions


@pytest.mark.parametrize(("file", "target"), crossed(IRS))
def test_predictions_are_confirmed(file, target):
    assert_not_contradicted(exported(file), target)


@pytest.mark.parametrize(("file", "target"), crossed(CONVERTED))
def test_predictions_of_converted_models_are_confirmed(file, target):
    assert_not_contradicted(converted_model(file, target), target)


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".onnx")])
def test_predictions_of_onnx_runtime_are_confirmed(file):
    assert_not_contradicted(exported(file), "ort")


@pytest.mark.slow
@pytest.mark.parametrize("file", IRS)
def test_predictions_of_npuw_are_confirmed(file):
    assert_not_contradicted(exported(file), "npu")


@pytest.mark.slow
@pytest.mark.parametrize("file", CONVERTED)
def test_predictions_of_npuw_of_converted_models_are_confirmed(file):
    assert_not_contradicted(converted_model(file, "npu"), "npu")


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("file", IRS)
def test_predictions_of_the_gpu_plugin_are_confirmed(file):
    assert_not_contradicted(exported(file), "gpu")
