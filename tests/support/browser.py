"""Headless Chromium, if there is one."""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str:
    """The browser, named by ``CHROMIUM`` or found on the path; skip the test without one."""
    program = os.environ.get("CHROMIUM") or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no Chromium here: none of {', '.join(_NAMES)} is on the path, and CHROMIUM names none")
    return program


@contextlib.contextmanager
def chromium():
    """A running browser without network."""
    path = executable()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without the sandbox it also runs as root, as in containers.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
