"""Each name that graphpass exports is documented: arguments, result and errors, with an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest
from support.models import fixtures

import graphpass
from graphpass import runtime, testing
from graphpass.engine import registry
from graphpass.runtime import speculative
from graphpass.verify.models import verify

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")

#: Exported names with their objects; the package `graphpass.verify` stands for its function.
EXPORTED = {name: getattr(graphpass, name) for name in graphpass.__all__} | {"verify": verify}

#: An alias has no docstring of its own.
DOCUMENTED = {name: thing for name, thing in EXPORTED.items() if name != "PassResult"}

#: Names of other packages with an example: not data, aliases or protocols.
EXAMPLES = DOCUMENTED | {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (testing, runtime, speculative)
    for name in package.__all__
    if name not in {"FAMILIES", "Backend", "Head", "Drafter", "StateDrafter"}
}
FUNCTIONS = {name: thing for name, thing in DOCUMENTED.items() if inspect.isfunction(thing)}


def section(text: str, name: str) -> str:
    """Return a section of a docstring; empty if there is none."""
    found = re.search(rf"^{name}:\n((?: +.*\n|\n)+)", f"{text}\n", re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_documents_arguments_result_and_errors(name):
    text = inspect.getdoc(FUNCTIONS[name])
    signature = inspect.signature(FUNCTIONS[name])
    assert re.findall(r"^    (\w+): ", section(text, "Args"), re.MULTILINE) == list(signature.parameters)
    assert bool(section(text, "Returns")) == (signature.return_annotation != "None")
    can_fail = name != "format_passes"
    assert bool(re.search(r"^    \w+Error: ", section(text, "Raises"), re.MULTILINE)) == can_fail


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, tmp_path, monkeypatch):
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "fixtures").symlink_to(fixtures())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry._PASSES, "registered", {})
    text = inspect.getdoc(EXAMPLES[name])
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert example.examples
    report: list[str] = []
    flags = doctest.ELLIPSIS
    doctest.DocTestRunner(optionflags=flags).run(example, out=report.append)
    assert report == []


@pytest.mark.parametrize("name", EXPORTED)
def test_name_has_an_entry_on_the_page(name):
    assert re.search(rf"^::: graphpass\.[\w.]+\.{name}$", PAGE, re.MULTILINE)
