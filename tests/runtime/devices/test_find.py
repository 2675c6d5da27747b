"""Runtimes and adapters, and the remedy for what is missing."""

from importlib.metadata import version

from graphpass.runtime.devices import Adapter, Runtime, find


def test_a_missing_package_names_the_remedy(monkeypatch):
    absent = find._Probe("X", "graphpass-absent", "names = []", "pip install it", "install a driver")
    assert find._found(absent) == Runtime("X", None, missing="graphpass-absent is not installed: pip install it")


def test_a_crashing_runtime_is_reported():
    crash = find._Probe("X", "numpy", "import os\nos.abort()", "", "install a driver")
    found = find._found(crash)
    assert (found.version, found.adapters) == (version("numpy"), ())
    assert found.missing.startswith("its process ended with -6")
    assert found.missing.endswith(": install a driver")


def test_a_runtime_without_adapters_names_the_driver():
    empty = find._Probe("X", "numpy", "names = []", "", "install a driver")
    assert find._found(empty).missing == "no adapter was found: install a driver"


def test_npuw_is_listed_with_openvino():
    probe = next(probe for probe in find._PROBES if probe.name == "OpenVINO, NPUW")
    assert [each.name.partition(",")[0] for each in find._found(probe).adapters] == ["NPUW on the CPU"]


def test_the_environment_of_a_stand_in_gpu_is_used(monkeypatch, tmp_path):
    """The environment's Python lists the devices; here a program in its place does."""
    assert find._gpu_on_cpu().missing.startswith("no environment with a GPU plugin: set GRAPHPASS_GPU_ENVIRONMENT")
    monkeypatch.setenv("GRAPHPASS_GPU_ENVIRONMENT", str(tmp_path))
    assert find._gpu_on_cpu().missing.endswith("set it to a folder with env.sh and venv, or unset it")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "env.sh").write_text("export FAKE_GPU=yes\n")
    python.write_text('#!/bin/sh\nfor answer; do :; done\necho "[\\"1.0\\", \\"GPU: $FAKE_GPU\\"]" > "$answer"\n')
    python.chmod(0o755)
    found = find._gpu_on_cpu()
    assert (found.version, found.adapters, found.missing) == ("1.0", (Adapter("GPU: yes", is_software=True),), None)
