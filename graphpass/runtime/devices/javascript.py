"""Find transformers.js, and Node and Chromium, which run it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

#: Environment variable with the path of a folder ``node_modules``.
MODULES = "GRAPHPASS_NODE_MODULES"

INSTALL = "npm install --ignore-scripts @huggingface/transformers onnxruntime-node onnxruntime-web puppeteer-core"

#: Names of Chromium's executables.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class JavaScript:
    """The programs that run transformers.js.

    Attributes:
        node: Path of Node.
        modules: The folder ``node_modules`` with transformers.js.
        version: Version of transformers.js.
        browser: Path of Chromium; ``None`` if it or a package that it requires is missing.
    """

    node: str
    modules: Path
    version: str
    browser: str | None


def find_javascript() -> JavaScript | str:
    """Return the programs that run transformers.js, or the missing part with a remedy."""
    modules = Path(os.environ.get(MODULES) or "node_modules").resolve()
    node = shutil.which("node")
    if node is None:
        return "Node was not found on PATH: install nodejs"
    version = _version_in(modules / "@huggingface" / "transformers")
    if version is None:
        return f"transformers.js is not in {modules}: {INSTALL}, and set its path in {MODULES}"
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    drives = (
        _version_in(modules / "puppeteer-core") is not None and _version_in(modules / "onnxruntime-web") is not None
    )
    return JavaScript(node, modules, version, browser if drives else None)


def _version_in(package: Path) -> str | None:
    try:
        return str(json.loads((package / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, LookupError):
        return None
