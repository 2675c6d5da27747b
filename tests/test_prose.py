"""Summaries, entries and comments follow the rules for prose, as far as a program can check them."""

from __future__ import annotations

import ast
import re
import subprocess
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

#: Words that have a plain form, with that form; docs/glossary.md gives terms their names.
_PLAIN = {
    r"((?<!cannot )tell|told|tells)": "report, return or name",
    r"(mend|mends|mended)": "fix",
    r"(held|behind|unlike|nobody)": "a noun, after, different, no one as a subject",
    r"(sight|sights)": "effective mask",
    r"(guess|guesses|guessed)": "draft",
    r"(normal forms?)": "canonical form",
    r"(tables? of angles)": "rotary table",
    r"((?<!here )(?:is|are|was|were) no (?!longer|such|larger|more|less|one)\w+)": "is not a",
    r"(stays? as (?:it is|they are))": "is unchanged",
}
_UNPLAIN = re.compile("|".join(rf"\b{words}\b" for words in _PLAIN), re.IGNORECASE)

#: Text that quotes a word to name it.
_QUOTING = {"docs/glossary.md", "CONTRIBUTING.md"}


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


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings, messages and comments; the lines of a page."""
    if file.suffix == ".md":
        yield from enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    with tokenize.open(file) as stream:
        yield from (
            (token.start[0], token.string)
            for token in tokenize.generate_tokens(stream.readline)
            if token.type == tokenize.COMMENT
        )


def unplain(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and words of texts that have a plain form."""
    for line, text in texts(file):
        plain = re.sub(r"``.*?``|`.*?`", "code", text)
        yield from ((line, match[0]) for match in _UNPLAIN.finditer(plain))


def pages() -> list[Path]:
    names = subprocess.run(("git", "ls-files", "*.md"), cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split() if name not in _QUOTING]


def test_words_are_plain() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {words}" for file in (*sources(), *pages()) for line, words in unplain(file)
    ]
    assert not found, "\n".join(found)


def test_prose_follows_the_rules() -> None:
    found = [f"{file.relative_to(ROOT)}:{line}: {offence}" for file in sources() for line, offence in offences(file)]
    assert not found, "\n".join(found)


def public_functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.ClassDef, ast.FunctionDef)) and not inner.name.startswith("_"):
            if isinstance(inner, ast.FunctionDef):
                yield inner
            else:
                yield from public_functions(inner)


def test_public_functions_of_several_parameters_describe_each() -> None:
    missing = []
    for file in sources():
        for function in public_functions(ast.parse(file.read_text(encoding="utf-8"))):
            doc = ast.get_docstring(function)
            parameters = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)} - {"self", "cls"}
            # The docstring of a command is its help.
            is_command = any("command" in ast.unparse(decorator) for decorator in function.decorator_list)
            is_described = is_command or doc is None or doc.startswith("See `") or "\nArgs:\n" in doc
            if len(parameters) > 1 and not is_described:
                missing.append(f"{file.relative_to(ROOT)}:{function.lineno}: {function.name}")
    assert not missing, "\n".join(missing)


def test_offences_are_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    entry = "Args:\n        a: What it is."
    file.write_text(
        f'"""What it is."""\n\n\ndef f(a):\n    """Return {"a " * 15}word.\n\n    {entry}\n    """\n'
        "    # Of all, the first line counts.\n    # What follows does not.\n"
    )
    assert [line for line, _ in offences(file)] == [1, 5, 8, 10]
