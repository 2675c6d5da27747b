"""docs/exporters.md has the table of the recorded results."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_follows_from_the_results():
    spec = importlib.util.spec_from_file_location("exporters_table", ROOT / "fixtures" / "exporters_table.py")
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert writer.PAGE.read_text() == writer.page(), "run python fixtures/exporters_table.py write"
