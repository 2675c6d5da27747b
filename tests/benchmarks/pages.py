"""Measure pages of differences by the number of layers: `python tests/benchmarks/pages.py [LAYERS ...]`.

A llama of real sizes, with weights that are holes of a sparse file, is converted. Told are the time to make the page,
its size, and in headless Chromium, as medians of several runs: the time from navigation until the layers stand there,
and those of a first search, which indexes, and of a later one. The goal: 80 layers open in under 2 s.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.browser import chromium
from support.scale import scaled

import graphpass
from graphpass.reports.diff import diff_models
from graphpass.reports.difference import Diff

REPEATS = 7
PASSES = "to-openvino,fuse-attention,simplify-shapes,make-stateful"
SEARCH = """word => {
  const query = document.querySelector(".tools input"), start = performance.now();
  query.value = word;
  query.dispatchEvent(new Event("input"));
  return performance.now() - start;
}"""


def main() -> None:
    """Print a line for each number of layers."""
    print(f"{'layers':>6} {'make s':>7} {'KB':>6} {'open ms':>8} {'search ms':>10} {'again ms':>9}")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for layers in map(int, sys.argv[1:] or ["4", "24", "80"]):
            place = Path(folder) / str(layers)
            before = graphpass.load(scaled("llama", "70B", place, layers=layers))
            after = graphpass.PassManager(graphpass.parse(PASSES)).run(before).model
            start = time.perf_counter()
            text = Diff(before, after, diff_models(before, after)).to_html("before", "after")
            made = time.perf_counter() - start
            (place / "page.html").write_text(text, encoding="utf-8")
            times = [measure(browser, (place / "page.html").as_uri()) for _ in range(REPEATS)]
            opened, first, later = (statistics.median(column) for column in zip(*times, strict=True))
            kilobytes = len(text) / 1000
            print(f"{layers:>6} {made:>7.2f} {kilobytes:>6.0f} {opened:>8.0f} {first:>10.0f} {later:>9.0f}")


def measure(browser, address: str) -> tuple[float, float, float]:
    """Times of a fresh page, in ms."""
    page = browser.new_page()
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".picture .cell")
    opened = (time.perf_counter() - start) * 1000
    found = opened, page.evaluate(SEARCH, "layers.3 softmax"), page.evaluate(SEARCH, "down_proj matmul")
    page.close()
    return found


if __name__ == "__main__":
    main()
