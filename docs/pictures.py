"""Draw the pictures of ``docs/images``: ``make pictures``. Needs Chromium, at ``$CHROMIUM`` or /usr/bin/chromium.

``attention.svg`` shows the attention of layer 0 of the fixture llama before and after ``convert --target ort``,
``rooms.svg`` the packages in the order of their imports; the others are screenshots of HTML reports.
"""

from __future__ import annotations

import html
import os
import tempfile
from collections import defaultdict
from pathlib import Path

from playwright.sync_api import sync_playwright

import graphpass
from graphpass.ir.graph import Node

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
MODEL = ROOT / "build" / "fixtures" / "llama" / "onnx"

#: Colours of operators that compute, and of those that move elements or compute shapes.
COMPUTES, MOVES = "#3f6fb5", "#b9c0c9"
HEAVY = {"MatMul", "Softmax", "Multiply", "Add", "RotaryEmbedding", "GroupQueryAttention"}


def attention(model: graphpass.Model) -> list[Node]:
    """Return the operators of layer 0's attention, without constants."""
    return [node for node in model.graph.nodes if "layers.0/self_attn" in node.name and node.op != "Constant"]


def depths(nodes: list[Node]) -> dict[str, int]:
    """Return for each node's name the longest path to it."""
    made = {value: node.name for node in nodes for value in node.outputs}
    found: dict[str, int] = {}
    for node in nodes:
        found[node.name] = max((found[made[value]] + 1 for value in node.inputs if value in made), default=0)
    return found


def drawn(nodes: list[Node], left: float, width: float, height: float, is_labelled: bool) -> list[str]:
    """Return SVG of a graph, layered by depth from top to bottom."""
    levels, centers = defaultdict(list), {}
    for name, depth in depths(nodes).items():
        levels[depth].append(name)
    pitch = height / len(levels)
    for depth, names in levels.items():
        for place, name in enumerate(names):
            centers[name] = (left + width * (place + 0.5) / len(names), 60 + pitch * (depth + 0.5))
    made = {value: node.name for node in nodes for value in node.outputs}
    edges = [(made[value], node.name) for node in nodes for value in node.inputs if value in made]
    lines = [
        f'<path d="M{x:.0f} {y:.0f}L{x2:.0f} {y2:.0f}" class="e"/>'
        for (x, y), (x2, y2) in ((centers[source], centers[user]) for source, user in edges)
    ]
    for node in nodes:
        label = html.escape(node.op.rpartition(".")[2])
        x, y = centers[node.name]
        if is_labelled:
            lines.append(box(x, y, (9 * len(label) + 16, 28), label))
            lines.append(f'<text x="{x:.0f}" y="{y + 5:.0f}" class="l">{label}</text>')
        else:
            lines.append(box(x, y, (14, 8), label))
    return lines


def box(x: float, y: float, size: tuple[int, int], label: str) -> str:
    """Return SVG of an operator."""
    wide, high = size
    place = f'x="{x - wide / 2:.0f}" y="{y - high / 2:.0f}" width="{wide}" height="{high}" rx="3"'
    return f'<rect {place} fill="{COMPUTES if label in HEAVY else MOVES}"><title>{label}</title></rect>'


def attention_svg(before: graphpass.Model, after: graphpass.Model) -> str:
    """Return the picture of one attention before and after."""
    old, new = attention(before), attention(after)
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 620" font-family="sans-serif">',
            "<style>.e{stroke:#8a929c;stroke-width:.8;fill:none}.l{fill:#fff;font-size:14px;text-anchor:middle}"
            ".h{font-size:17px;fill:#24292f}</style>",
            '<rect width="900" height="620" fill="#fff"/>',
            f'<text x="20" y="32" class="h">before: {len(old)} operators</text>',
            f'<text x="500" y="32" class="h">after: {len(new)} operators</text>',
            *drawn(old, 10, 440, 550, is_labelled=False),
            *drawn(new, 480, 410, 550, is_labelled=True),
            "</svg>\n",
        ]
    )


#: Rooms by the part of the work that they do, with a colour each.
PARTS = {
    "for users": ("#8a5fa8", "cli testing api matrix jobs artifacts reports"),
    "rewrite and prove": ("#3f6fb5", "passes targets verify engine runtime"),
    "understand": ("#3d8a6a", "io analysis dialects ir storage"),
}


def rooms_svg() -> str:
    """Return the picture of the rooms, one below the other."""
    lines, top = [], 20
    for part, (colour, rooms) in PARTS.items():
        names = rooms.split()
        lines.append(f'<text x="250" y="{top + 13 * len(names) + 5}" class="h">{part}</text>')
        for name in names:
            lines.append(f'<rect x="20" y="{top}" width="200" height="23" rx="4" fill="{colour}"/>')
            lines.append(f'<text x="120" y="{top + 16}" class="l">{name}</text>')
            top += 26
        top += 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 {top + 10}" width="420"',
            ' font-family="sans-serif">',
            "<style>.l{fill:#fff;font-size:14px;text-anchor:middle}.h{font-size:16px;fill:#24292f}</style>",
            f'<rect width="420" height="{top + 10}" fill="#fff"/>',
            *lines,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "rooms.svg").write_text(rooms_svg(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        pages = Path(folder)
        graphpass.convert(MODEL, pages / "ort", "ort", verify=False)
        before, after = graphpass.load(MODEL), graphpass.load(pages / "ort")
        (IMAGES / "attention.svg").write_text(attention_svg(before, after), encoding="utf-8")
        (pages / "diff.html").write_text(
            graphpass.diff(MODEL, pages / "ort").to_html("llama", "llama for ort"), encoding="utf-8"
        )
        (pages / "inspect.html").write_text(graphpass.inspect(MODEL).to_html("llama"), encoding="utf-8")
        browser = driver.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        for name in ("diff", "inspect"):
            page = browser.new_page(viewport={"width": 1100, "height": 720})
            page.goto((pages / f"{name}.html").as_uri())
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
