"""Generated pages are current and complete; links and shown commands of hand-written ones hold."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import click
import pytest

import graphpass
from graphpass.cli.main import cli
from graphpass.error_catalog import CATALOG

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@functools.cache
def generator():
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def generated():
    return generator().pages()


def headings(page):
    return re.findall(r"^#+ (.*)$", page, re.MULTILINE)


@pytest.mark.parametrize("name", ["passes.md", "targets.md", "errors.md", "json.md", "masks.md", "proofs.md"])
def test_page_is_current(name):
    assert (ROOT / "docs" / name).read_text("utf-8") == generated()[name], f"docs/{name} is out of date: run make docs"


def test_every_generated_page_is_compared():
    marked = {page.name for page in PAGES if page.read_text("utf-8").startswith(generator().MARK)}
    assert marked == generated().keys()


@pytest.mark.parametrize("name", graphpass.pass_names())
def test_pass_has_an_entry(name):
    assert name in headings((ROOT / "docs" / "passes.md").read_text("utf-8"))


@pytest.mark.parametrize("name", graphpass.target_names())
def test_target_has_an_entry(name):
    assert name in headings((ROOT / "docs" / "targets.md").read_text("utf-8"))


@pytest.mark.parametrize("name", CATALOG)
def test_error_has_an_entry(name):
    assert name in headings((ROOT / "docs" / "errors.md").read_text("utf-8"))


def test_every_option_is_documented():
    text = generated()["passes.md"]
    assert re.findall(r"^\|[^\n]*\|  \|$", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in map(slug, headings(linked.read_text("utf-8"))), f"{page.name} links to {target}"


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    for line in re.findall(r"(?:^    |^\$ |`)graphpass ([a-z][^`\n#]*)", page.read_text("utf-8"), re.MULTILINE):
        name, *words = line.split()
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, f"{page.name}: graphpass {line}"
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert used <= known | {"--help"}, f"{page.name}: graphpass {line}"
