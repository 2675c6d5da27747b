"""Hooks of the site: pages from the top of the checkout, and links to files that the site does not have."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "https://github.com/graphpass/graphpass/blob/main"

#: Pages of the site by the file at the top of the checkout.
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the top of the checkout."""
    for source, page in TOP.items():
        text = (ROOT / source).read_text("utf-8")
        text = re.sub(r"\]\((?!https?:|#)", "](../", text).replace("](../docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of ``docs/`` to pages of the site or to the repository."""
    return re.sub(r"\]\(\.\./([^)#]+)", lambda link: f"]({TOP.get(link[1]) or f'{SOURCE}/{link[1]}'}", markdown)
