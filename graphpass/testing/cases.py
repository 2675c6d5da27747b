"""Read and check pass tests that are written as text.

    // RUN: fuse-swish

    // ----- a product with its own sigmoid
    %x = Parameter : f32[n, 4]
    %s = Sigmoid(%x)
    %y = Multiply(%x, %s)
    Result(%y) {name=y}
    // AFTER
    %x = Parameter : f32[n, 4]
    %y = Swish(%x)
    Result(%y) {name=y}

    // ----- a product with another sigmoid
    ...
    // UNCHANGED

``// RUN:`` holds the pipeline, ``// DIALECT:`` the dialects if not both, ``// SIZES:`` sizes of symbolic dimensions,
``n=4``. Those above the first case hold for all, those inside for one. ``// OUTCOME:`` is the last pass's outcome,
``// NOTE:`` a part of one of its notes, ``// ERROR:`` the id and a part of the message of the error that ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphpass.dialects.text import parse
from graphpass.engine.manager import PassManager, PipelineResult
from graphpass.engine.pipeline import parse as parse_pipeline
from graphpass.errors import GraphpassError
from graphpass.ir.model import Model
from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.printer import statements_of
from graphpass.ir.types import Dialect
from graphpass.testing.assertions import assert_text, plain
from graphpass.verify.evaluate import difference_on, evaluate, noise_for, takes

_DIALECTS: tuple[Dialect, ...] = ("onnx", "openvino")
_DIRECTIVE = re.compile(r"^// (RUN|DIALECT|SIZES|OUTCOME|NOTE|ERROR): *(.*)$", re.MULTILINE)
_CASE = re.compile(r"^// ----- *(.*)$", re.MULTILINE)
_AFTER = re.compile(r"^// (AFTER|UNCHANGED)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A graph before and after a pipeline, in one dialect.

    Attributes:
        file: The file that it is in.
        title: Its title.
        dialect: The dialect.
        directives: Texts by directive.
        before: The text before.
        after: The text after; ``None`` if there is an error instead.
    """

    file: Path
    title: str
    dialect: Dialect
    directives: dict[str, str]
    before: str
    after: str | None

    def __str__(self) -> str:
        return f"{self.file.stem}: {self.title} [{self.dialect}]"

    def run(self) -> tuple[Model, PipelineResult]:
        """Return the model before, and the result of the pipeline.

        Raises:
            GraphpassError: As `graphpass.PassManager.run`; GP270, the text is not a graph.
        """
        model = parse(self.before, self.dialect)
        return model, PassManager(parse_pipeline(self.directives["RUN"])).run(model)

    def check(self) -> None:
        """Run the pipeline; compare text, outputs for random inputs, and outcome.

        Outputs are compared if the result has no other inputs and no variables.

        Raises:
            AssertionError: Something differs; the message says what.
        """
        try:
            model, result = self.run()
        except GraphpassError as error:
            wanted, _, words = self.directives.get("ERROR", "").partition(" ")
            if error.id != wanted or words not in error.message:
                raise AssertionError(f"{self}: ends with {error}") from error
            return
        assert "ERROR" not in self.directives, f"{self}: ends without {self.directives['ERROR']}"
        assert self.after is not None, f"{self}: has no AFTER"
        assert_text(result.model, self.after)
        assert result.changed == (self.after != self.before), f"{self}: reports changed={result.changed}"
        outcome, notes = result.records[-1].outcome, result.records[-1].notes
        assert self.directives.get("OUTCOME", outcome) == outcome, f"{self}: the outcome is {outcome!r}"
        note = self.directives.get("NOTE")
        assert note is None or any(note in one for one in notes), f"{self}: the notes are {notes}"
        self._compare(model, result.model)

    def _compare(self, model: Model, result: Model) -> None:
        sizes = dict(part.split("=") for part in self.directives.get("SIZES", "").split())
        feeds = noise_for(parse_text(self.before), {name: int(size) for name, size in sizes.items()})
        if not (takes(model, feeds) and takes(result, feeds)):
            return
        reference = evaluate(model, feeds)
        kept = {port.name for port in result.outputs}
        difference = difference_on({name: one for name, one in reference.items() if name in kept}, result, feeds)
        assert difference is None, f"{self}: {difference}"


def read_cases(*places: Path) -> list[Case]:
    """Return the cases of files, and of all ``.graph`` files in folders."""
    files = [file for place in places for file in (sorted(place.rglob("*.graph")) if place.is_dir() else [place])]
    return [case for file in files for case in _cases(file)]


def _cases(file: Path) -> Iterator[Case]:
    head, *parts = _CASE.split(file.read_text("utf-8"))
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        directives = dict(_DIRECTIVE.findall(head)) | dict(_DIRECTIVE.findall(text))
        before, *rest = _AFTER.split(text, maxsplit=1)
        expected = None if not rest else before if rest[0] == "UNCHANGED" else rest[1]
        for dialect in _DIALECTS:
            if dialect in directives.get("DIALECT", dialect).split():
                yield Case(file, title.strip(), dialect, directives, before, expected)


def update(file: Path) -> None:
    """Write results of passes into the cases of a file.

    Raises:
        GraphpassError: A pipeline failed that is not to.
    """
    head, *parts = _CASE.split(file.read_text("utf-8"))
    first = {case.title: case for case in reversed(list(_cases(file)))}
    for number, title in enumerate(parts[::2]):
        if "ERROR" not in (case := first[title.strip()]).directives:
            parts[2 * number + 1] = _updated(case, parts[2 * number + 1])
    cases = (f"// ----- {title}\n{text.strip()}\n" for title, text in zip(parts[::2], parts[1::2], strict=True))
    file.write_text("\n".join([f"{head.strip()}\n", *cases]), "utf-8")


def _updated(case: Case, text: str) -> str:
    _, result = case.run()
    before, *rest = _AFTER.split(text, maxsplit=1)
    kept = [found[0] for found in _DIRECTIVE.finditer(rest[1])] if rest else []
    after = [str(plain(statement)) for statement in statements_of(result.model.graph)]
    return "\n".join([before.strip(), *(["// AFTER", *after] if result.changed else ["// UNCHANGED"]), *kept])
