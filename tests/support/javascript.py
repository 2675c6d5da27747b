"""transformers.js, where `make test-slow` installs it; see CONTRIBUTING.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphpass.runtime.devices.javascript import MODULES, JavaScript, find_javascript

#: Folder of the packages that `tests/javascript/package.json` lists.
INSTALLED = Path(__file__).resolve().parents[2] / "build" / "javascript" / "node_modules"


def javascript(monkeypatch: pytest.MonkeyPatch, *, browser: bool = False) -> JavaScript:
    """Find transformers.js; skip the test without it, or without Chromium if that is asked for."""
    if INSTALLED.is_dir():
        monkeypatch.setenv(MODULES, str(INSTALLED))
    programs = find_javascript()
    if isinstance(programs, str):
        pytest.skip(programs)
    if browser and programs.browser is None:
        pytest.skip("Chromium was not found on PATH, or puppeteer-core and onnxruntime-web are not installed")
    return programs
