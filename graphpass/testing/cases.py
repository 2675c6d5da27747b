"""Tests of passes written as text.

    // RUN: fuse-swish
    %x = Parameter : f32[n, 4]

    // ----- a product with its own sigmoid
    %s = Sigmoid(%x)
    %y = Multiply(%x, %s)
    Result(%y) {name=y}
    // AFTER
    %y = Swish(%x)
    Result(%y) {name=y}

    // ----- a product with another sigmoid
    ...
    // UNCHANGED

Lines above the first case apply to all cases. The graph after the pipeline may omit constants, and also inputs if the
pipeline changes none of them. Directives:

| line | meaning |
| --- | --- |
| ``// RUN:`` | the pipeline |
| ``// DIALECT:`` | the dialects; by default both |
| ``// SIZES:`` | sizes of symbolic dimensions: ``n=4`` |
| ``// OUTCOME:`` | the outcome of the last pass |
| ``// NOTE:`` | a substring of a note of the last pass |
| ``// ERROR:`` | the id, and a substring of the message, of the error that ends the pipeline |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from graphpass.dialects.text import parse_model
from graphpass.engine.manager import PassManager, PipelineResult
from graphpass.engine.pipeline import parse as parse_pipeline
from graphpass.errors import GraphpassError, UsageError
from graphpass.ir.model import Model
from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.printer import statements_of, text_of
from graphpass.ir.text.statements import Statement
from graphpass.ir.types import Dialect
from graphpass.jobs.reduce.candidates import live
from graphpass.testing.assertions import assert_text, plain
from graphpass.verify.evaluate import accepts_feeds, difference_on, evaluate, noise_for

_DIALECTS: tuple[Dialect, ...] = ("onnx", "openvino")
_DIRECTIVE = re.compile(r"^// (RUN|DIALECT|SIZES|OUTCOME|NOTE|ERROR): *(.*)$", re.MULTILINE)
_CASE = re.compile(r"^// ----- *(.*)$", re.MULTILINE)
_AFTER = re.compile(r"^// (AFTER|UNCHANGED)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A graph before and after a pipeline, in one dialect.

    Attributes:
        file: The file with the case.
        title: Title of the case.
        dialect: The dialect.
        directives: Values of the directives: ``{"RUN": "fuse-swish"}``.
        before: The text of the graph before the pipeline.
        after: The text expected after the pipeline; ``None`` if the graph does not change or an error is expected.

    Examples:
        >>> from pathlib import Path
        >>> from graphpass.testing import Case
        >>> text = '''%x = Parameter : f32[n]
        ... %y = Relu(%x)
        ... Result(%y) {name=y}'''
        >>> directives = {"RUN": "simplify-shapes", "SIZES": "n=4"}
        >>> case = Case(Path("relu.graph"), "a Relu", "openvino", directives, text, None)
        >>> case.check()
        >>> print(case)
        relu: a Relu [openvino]
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
        """Return the model before the pipeline, and the pipeline's result.

        Raises:
            GraphpassError: As `graphpass.PassManager.run`; GP270, the text is not a graph.
        """
        model = parse_model(self.before, self.dialect)
        return model, PassManager(parse_pipeline(self.directives["RUN"])).run(model)

    def check(self) -> None:
        """Run the pipeline, and compare text, outcome, notes and outputs for random inputs.

        Outputs are compared only if the result has the same inputs and no variables.

        Raises:
            AssertionError: A comparison fails; the message has the difference.
        """
        try:
            model, result = self.run()
        except GraphpassError as error:
            expected, _, message = self.directives.get("ERROR", "").partition(" ")
            if error.id != expected or message not in error.message:
                raise AssertionError(f"{self}: ends with {error}") from error
            return
        assert "ERROR" not in self.directives, f"{self}: ends without {self.directives['ERROR']}"
        assert_text(result.model, text_of(model.graph) if self.after is None else self.after)
        assert result.changed == (self.after is not None), f"{self}: reports changed={result.changed}"
        outcome, notes = result.records[-1].outcome, result.records[-1].notes
        assert self.directives.get("OUTCOME", outcome) == outcome, f"{self}: the outcome is {outcome!r}"
        note = self.directives.get("NOTE")
        assert note is None or any(note in line for line in notes), f"{self}: the notes are {notes}"
        self._compare(model, result.model)

    def _compare(self, model: Model, result: Model) -> None:
        sizes = dict(part.split("=") for part in self.directives.get("SIZES", "").split())
        feeds = noise_for(parse_text(self.before), {name: int(size) for name, size in sizes.items()})
        if not (accepts_feeds(model, feeds) and accepts_feeds(result, feeds)):
            return
        reference = evaluate(model, feeds)
        kept = {port.name for port in result.outputs}
        difference = difference_on({name: array for name, array in reference.items() if name in kept}, result, feeds)
        assert difference is None, f"{self}: {difference}"


def read_cases(*paths: Path) -> list[Case]:
    """Return the cases in files, and in all ``.graph`` files of folders.

    Raises:
        UsageError: GP270, a text is not a graph, or a case has no expected result.

    Examples:
        >>> from pathlib import Path
        >>> from graphpass.testing import read_cases
        >>> text = '''// RUN: simplify-shapes
        ... // ----- a Relu
        ... %x = Parameter : f32[n]
        ... %y = Relu(%x)
        ... Result(%y) {name=y}
        ... // UNCHANGED
        ... '''
        >>> size = Path("relu.graph").write_text(text)
        >>> [str(case) for case in read_cases(Path("relu.graph"))]
        ['relu: a Relu [onnx]', 'relu: a Relu [openvino]']
    """
    files = [file for path in paths for file in (sorted(path.rglob("*.graph")) if path.is_dir() else [path])]
    return [case for file in files for case in _cases(file)]


def _cases(file: Path) -> Iterator[Case]:
    head, *parts = _CASE.split(file.read_text("utf-8"))
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        case = _case(file, head, title, text)
        if case.after is None and not re.search(r"^// (UNCHANGED$|ERROR:)", text, re.MULTILINE):
            message = f"{file}, case {case.title}: expected // AFTER, // UNCHANGED or // ERROR:"
            raise UsageError("GP270", message, f"python -m graphpass.testing {file} writes them")
        yield from (
            replace(case, dialect=dialect)
            for dialect in _DIALECTS
            if dialect in case.directives.get("DIALECT", dialect).split()
        )


def _case(file: Path, head: str, title: str, text: str) -> Case:
    """Return a case, in the first dialect of its directive."""
    directives = dict(_DIRECTIVE.findall(head)) | dict(_DIRECTIVE.findall(text))
    before, *rest = _AFTER.split(text, maxsplit=1)
    statements = live((*parse_text(head), *parse_text(before)))
    after = _completed(statements, rest[1]) if rest and rest[0] == "AFTER" else None
    dialect = _DIALECTS["onnx" not in directives.get("DIALECT", "onnx")]
    return Case(file, title.strip(), dialect, directives, _joined(statements), after)


def _completed(statements: Iterable[Statement], text: str) -> str:
    """Return ``text`` with the inputs and constants that it omits, from ``statements``."""
    stated = parse_text(text)
    made = {result for statement in stated for result in statement.results}
    inputs = () if any(statement.kind == "Parameter" for statement in stated) else ("Parameter",)
    sources = [
        statement
        for statement in statements
        if statement.kind in {"Constant", *inputs} and made.isdisjoint(statement.results)
    ]
    return _joined((*sources, *stated))


def _joined(statements: Iterable[Statement]) -> str:
    return "\n".join(map(str, statements))


def update(file: Path) -> None:
    """Replace the expected graphs in a file of cases by the pipelines' results.

    Raises:
        UsageError: GP270, the file has no case.
        GraphpassError: A pipeline failed that is expected to succeed.
    """
    head, *parts = _CASE.split(file.read_text("utf-8"))
    if not parts:
        raise UsageError("GP270", "the file has no case", "a case begins with // ----- TITLE")
    cases = (_updated(file, head, *each) for each in zip(parts[::2], parts[1::2], strict=True))
    file.write_text("\n".join([f"{head.strip()}\n", *cases]), "utf-8")


def _updated(file: Path, head: str, title: str, text: str) -> str:
    before, *rest = _AFTER.split(text, maxsplit=1)
    written = [f"// ----- {title}", before.strip()]
    case = _case(file, head, title, text)
    if "ERROR" not in case.directives:
        _, result = case.run()
        written += ["// AFTER", *_shortened(case, result.model)] if result.changed else ["// UNCHANGED"]
        written += [match[0] for match in _DIRECTIVE.finditer(rest[1] if rest else "")]
    return "\n".join(written) + "\n"


def _shortened(case: Case, model: Model) -> Iterator[str]:
    """Yield the lines of a result, without inputs and constants of the case."""
    stated = {
        statement.results: statement
        for statement in parse_text(case.before)
        if statement.kind in {"Constant", "Parameter"}
    }
    lines = [plain(statement) for statement in statements_of(model.graph)]
    inputs = {statement.results for statement in lines if statement.kind == "Parameter"}
    same = inputs == {results for results, statement in stated.items() if statement.kind == "Parameter"}
    for statement in lines:
        if statement.results not in stated or (statement.kind == "Parameter" and not same):
            # OpenVINO IR has no symbolic dimensions: the case has their names.
            yield str(stated.get(statement.results, statement))
