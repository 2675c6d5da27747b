"""Passes, analyses and targets name operators neutrally: dialects alone know the native ones."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = [
    path for room in ("passes", "graphpass/analysis", "graphpass/targets") for path in (ROOT / room).rglob("*.py")
]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_native_operators(path):
    native = {name for name in imported(path) if name.startswith(("onnx.helper", "openvino.opset"))}
    assert not native, f"make operators with model.rewriter(): {native}"
