"""Run the notebooks of ``docs/notebooks`` and store what they print: ``make notebooks``.

A notebook is the JSON of nbformat 4. Cells run in one Python process, in the folder of the checkout.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"


def read(path: Path) -> dict[str, Any]:
    """Return a notebook."""
    notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells that run, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell: dict[str, Any]) -> str:
    """Return the text that a cell printed when it was stored."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def printed(notebook: dict[str, Any]) -> list[str]:
    """Run a notebook and return the text that each cell prints."""
    names: dict[str, Any] = {"__name__": "__main__"}
    texts = []
    for cell in code_cells(notebook):
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            code = compile("".join(cell["source"]), "notebook", "exec", dont_inherit=True)
            exec(code, names)  # noqa: S102 - notebooks of this repository
        texts.append(stream.getvalue())
    return texts


def as_markdown(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page, each cell followed by its output."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        if cell["cell_type"] == "code" and (output := stored(cell)):
            parts.append(f"```text\n{output.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def store(path: Path) -> None:
    """Run a notebook and write its outputs into it."""
    notebook = read(path)
    for number, (cell, text) in enumerate(zip(code_cells(notebook), printed(notebook), strict=True), start=1):
        cell["execution_count"] = number
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    for file in sorted(FOLDER.glob("*.ipynb")):
        store(file)
