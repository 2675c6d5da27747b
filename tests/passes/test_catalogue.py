"""The catalogue lists the passes of the library, each in the module of its name."""

import ast
from pathlib import Path

import pytest

import graphpass
from graphpass.engine.registry import get_pass
from graphpass.passes.catalogue import PASSES

ROOT = Path(__file__).resolve().parents[2]


def defined_passes():
    """Return the module of each class that gives itself a name, by that name."""
    found = {}
    for file in sorted((ROOT / "passes").rglob("*.py")):
        module = ".".join(("graphpass", *file.relative_to(ROOT).with_suffix("").parts))
        for owner in ast.parse(file.read_text()).body:
            for item in owner.body if isinstance(owner, ast.ClassDef) else ():
                given = item.value if isinstance(item, ast.Assign | ast.AnnAssign) else None
                target = ast.unparse(item).partition("=")[0].partition(":")[0].strip()
                if target == "name" and isinstance(given, ast.Constant):
                    found[given.value] = module
    return found


DEFINED = defined_passes()


@pytest.mark.parametrize("name", sorted(PASSES.keys() | DEFINED.keys()))
def test_the_catalogue_lists_the_passes_of_the_library(name):
    assert PASSES.get(name) == DEFINED.get(name)
    assert get_pass(name).__module__ == PASSES[name]


def test_passes_of_the_catalogue_are_known_by_name():
    assert set(graphpass.pass_names()) >= PASSES.keys()
