"""What every page has around what it says."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["framed"]


def framed(title: str, heading: str, parts: Iterable[str], script: str = "") -> str:
    """A self-contained HTML page.

    Args:
        title: What the browser shows as the page's name, as plain text.
        heading: The first line, as plain text.
        parts: What follows, as HTML; empty ones are left out.
        script: JavaScript to run at the end.
    """
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    page = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        f"<h1>{escape(heading)}</h1>",
        *parts,
        f"<script>{script}</script></body></html>" if script else "</body></html>",
    ]
    return "\n".join(part for part in page if part) + "\n"
