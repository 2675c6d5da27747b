"""Reports fit on a screen, however many layers a model has, and end with the verdict."""

import pytest
from support.commands import in_process
from support.models import export
from support.scale import scaled


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """A model of 24 layers."""
    folder = tmp_path_factory.mktemp("deep")
    scaled("llama", "tiny", folder, layers=24, seed=0)
    return folder


@pytest.mark.parametrize("target", ["cpu", "ort"])
def test_a_conversion_of_24_layers_fits_a_screen(deep, tmp_path, capfd, target):
    done = in_process(capfd, "convert", deep, "-o", tmp_path / "out", "--target", target)
    lines = done.out.splitlines()
    assert done.code == 0
    assert len(lines) <= 40
    assert lines[-1].startswith("verified  same: ")
    assert not [line for line in lines if line.lstrip().startswith("sequence ")]


def test_verbose_lists_passes_files_and_sequences(tmp_path, capfd):
    arguments = ["convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "cpu"]
    done = in_process(capfd, *arguments, "--verbose", "--no-tokenizer")
    lines = done.out.splitlines()
    assert "  sequence 0: prompt of 5 tokens, 12 greedy steps" in lines
    assert [line for line in lines if line.startswith("  openvino_model.xml (")]
    assert [line for line in lines if line.startswith("  change-precision ") and line.endswith("unchanged")]
    assert lines[-1].startswith("verified  same: ")


def test_a_broken_contract_of_many_blocks_fits_a_screen(deep, capfd):
    done = in_process(capfd, "check", deep, "--target", "ort")
    lines = done.out.splitlines()
    assert len(lines) <= 40
    assert lines[-1].startswith("the contract ")
    assert len(in_process(capfd, "inspect", deep).out.splitlines()) <= 40
