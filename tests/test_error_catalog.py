import re
from pathlib import Path

import pytest

from graphpass.error_catalog import CATALOG, explain_error, is_error_id
from graphpass.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [file for folder in ("graphpass", "passes", "cli") for file in (ROOT / folder).rglob("*.py")]


def ids_in_the_source():
    """Ids as they are raised: string literals."""
    return {found for file in SOURCES for found in re.findall(r'"(GP\d+)"', file.read_text(encoding="utf-8"))}


def test_every_error_is_explained():
    assert ids_in_the_source() - CATALOG.keys() == set()


def test_every_explained_error_is_raised():
    assert CATALOG.keys() - ids_in_the_source() == set()


def test_docstrings_name_known_errors():
    named = {found for file in SOURCES for found in re.findall(r"\bGP\d{3}\b", file.read_text(encoding="utf-8"))}
    assert named - CATALOG.keys() == set()


def test_ids_are_explained_by_name():
    assert is_error_id("GP203")
    assert is_error_id("gp203")
    assert not is_error_id("make-stateful")
    assert explain_error("gp203") == f"GP203: {CATALOG['GP203']}"
    with pytest.raises(UsageError, match="GP216: there is no error GP999"):
        explain_error("GP999")
