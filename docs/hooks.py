"""Hooks of the site: pages from the top of the checkout and of notebooks, and links to files outside of ``docs/``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent))
from notebooks import FOLDER as NOTEBOOKS, as_markdown, read

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "https://github.com/graphpass/graphpass/blob/main"

#: Pages of the site by the file at the top of the checkout.
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the top of the checkout, and one for each notebook."""
    for source, page in TOP.items():
        text = (ROOT / source).read_text("utf-8")
        text = re.sub(r"\]\((?!https?:|#)", "](../", text).replace("](../docs/", "](")
        files.append(File.generated(config, page, content=text.replace(".ipynb)", ".md)")))
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        content = as_markdown(read(notebook))
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of ``docs/`` to pages of the site or to the repository."""
    return re.sub(r"\]\(\.\./([^)#]+)", lambda link: f"]({TOP.get(link[1]) or f'{SOURCE}/{link[1]}'}", markdown)
