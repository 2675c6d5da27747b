"""Summaries, entries and comments follow the rules for prose, as far as a program can check them."""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]

CHECKED = ("cli", "graphpass", "passes")

#: Words that open a clause about a thing instead of naming it.
_OPENINGS = r"(What|Which|Who|Whose|Whom|Of|How|That)\b"
_SUMMARY = re.compile(_OPENINGS.replace("(", "(Whether|If|"))
_ENTRY = re.compile(rf"\s+\w+: {_OPENINGS}")
_COMMENT = re.compile(rf"#:? {_OPENINGS}")

#: Most words of a summary; code counts as one.
_WORDS = 15


def sources() -> list[Path]:
    paths = [ROOT / name for name in CHECKED]
    return sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py")))


def offences(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and offence of each docstring and comment against the rules."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (doc := ast.get_docstring(node)):
            first, summary = node.body[0].lineno, doc.split("\n\n")[0]
            words = len(re.sub(r"``.*?``|`.*?`", "code", summary).split())
            if found := _SUMMARY.match(summary):
                yield first, f"the summary opens with {found[0]}"
            if words > _WORDS:
                yield first, f"the summary has {words} words: {summary}"
            for place, line in enumerate(doc.splitlines()):
                if _ENTRY.match(line):
                    yield first + place, line.strip()
    with tokenize.open(file) as stream:
        before = 0
        for token in tokenize.generate_tokens(stream.readline):
            if token.type == tokenize.COMMENT:
                if token.start[0] != before + 1 and _COMMENT.match(token.string):
                    yield token.start[0], token.string
                before = token.start[0]


def test_prose_follows_the_rules() -> None:
    found = [f"{file.relative_to(ROOT)}:{line}: {offence}" for file in sources() for line, offence in offences(file)]
    assert not found, "\n".join(found)


def test_offences_are_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    entry = "Args:\n        a: What it is."
    file.write_text(
        f'"""What it is."""\n\n\ndef f(a):\n    """Return {"a " * 15}word.\n\n    {entry}\n    """\n'
        "    # Of all, the first line counts.\n    # What follows does not.\n"
    )
    assert [line for line, _ in offences(file)] == [1, 5, 8, 10]
