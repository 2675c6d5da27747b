"""Node, transformers.js and Chromium, with a remedy for what is missing."""

import json

import pytest

from graphpass.runtime.devices import javascript
from graphpass.runtime.devices.javascript import MODULES, JavaScript, find_javascript


def installed(modules, *packages):
    for package in packages:
        (modules / package).mkdir(parents=True)
        (modules / package / "package.json").write_text(json.dumps({"version": "3.1"}))


@pytest.fixture
def modules(tmp_path, monkeypatch):
    for name in ("node", "chromium"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv(MODULES, str(tmp_path / "modules"))
    return tmp_path / "modules"


def test_all_programs_are_found(modules, tmp_path):
    installed(modules, "@huggingface/transformers", "puppeteer-core", "onnxruntime-web")
    binaries = tmp_path / "bin"
    assert find_javascript() == JavaScript(str(binaries / "node"), modules, "3.1", str(binaries / "chromium"))


@pytest.mark.parametrize("package", ["puppeteer-core", "onnxruntime-web"])
def test_a_browser_needs_further_packages(modules, package):
    installed(modules, "@huggingface/transformers", package)
    assert find_javascript().browser is None


def test_missing_programs_have_a_remedy(modules, tmp_path):
    assert find_javascript() == (
        f"transformers.js is not in {modules}: {javascript.INSTALL}, and set its path in GRAPHPASS_NODE_MODULES"
    )
    installed(modules, "@huggingface/transformers")
    (modules / "@huggingface" / "transformers" / "package.json").write_text("{")
    assert find_javascript().startswith("transformers.js is not in ")
    (tmp_path / "bin" / "node").unlink()
    assert find_javascript() == "Node was not found on PATH: install nodejs"
