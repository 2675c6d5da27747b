"""The page of docs/example generates with a folder of target `web`, as a user opens it."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.commands import in_process
from support.javascript import javascript
from support.models import export, reference

from graphpass.runtime.devices.apart import run_apart
from graphpass.runtime.devices.software import software_vulkan

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "example" / "web" / "index.html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder as `python -m http.server` does."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def shown(monkeypatch, folder: Path, **fields: str) -> dict[str, str]:
    """Return what the page shows after Generate was pressed."""
    found = javascript(monkeypatch, browser=True)
    task, answer = folder / "task.json", folder / "answer.json"
    shutil.copy(PAGE, folder / "index.html")
    with served(folder) as address:
        given = {"modules": str(found.modules), "chromium": found.browser, "software": software_vulkan() is not None}
        task.write_text(json.dumps({**given, "url": f"{address}/?{urlencode(fields)}"}))
        script = str(Path(__file__).with_name("fill_page.mjs"))
        assert run_apart([found.node, script, str(task), str(answer)], answer, 600) == ""
    return json.loads(answer.read_text())


@pytest.mark.parametrize("device", ["webgpu", "wasm"])
def test_the_page_generates(device, tmp_path, capfd, monkeypatch):
    source, told = export("mistral_sw8", "onnx"), reference("mistral_sw8")
    target = ("--target", f"web{{device={device}}}", "--no-verify")
    done = in_process(capfd, "convert", source, "-o", tmp_path / "model", *target)
    assert done.code == 0, done.err
    prompt = ",".join(map(str, told["prompt_ids"]))
    found = shown(monkeypatch, tmp_path, model="model", prompt=prompt)
    assert found["output"] == ",".join(map(str, told["greedy_ids"])), found
    assert "ms a token" in found["facts"]


def test_the_page_shows_text_and_failures(tmp_path, capfd, monkeypatch):
    done = in_process(
        capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "model", "--target", "web", "--no-verify"
    )
    assert done.code == 0, done.err
    assert shown(monkeypatch, tmp_path, model="model", prompt="hello", device="wasm", count="4")["output"]
    (tmp_path / "answer.json").unlink()
    found = shown(monkeypatch, tmp_path, model="absent", device="wasm")
    assert (found["output"], "absent/config.json" in found["facts"]) == ("", True), found
