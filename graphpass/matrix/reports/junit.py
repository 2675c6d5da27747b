"""Report on a run as JUnit XML: models are suites, targets are cases."""

from __future__ import annotations

import re
from collections import defaultdict
from xml.etree import ElementTree as ET

from ..cells import CellResult
from ..run import MatrixResults
from .plain import detail_of

#: Characters that XML 1.0 does not allow.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: Exit codes of refused models, reported as failures; other exit codes are errors.
_REFUSED = frozenset({1, 4})


def as_junit(run: MatrixResults) -> str:
    """Return JUnit XML for Jenkins, GitLab and others.

    | cell | element |
    | --- | --- |
    | refused, or with new findings | ``failure`` |
    | failed otherwise, for example by a crash | ``error`` |
    | with known findings only, or cancelled | ``skipped`` |
    """
    suites: dict[str, list[CellResult]] = defaultdict(list)
    for result in run.results:
        suites[result.cell.model].append(result)
    counts = [_counts(run, results) for results in suites.values()]
    total = {name: str(sum(int(count[name]) for count in counts)) for name in ("tests", "failures", "errors")}
    root = ET.Element("testsuites", {"name": "graphpass ci", "time": _seconds(run.seconds), **total})
    for (model, results), count in zip(suites.items(), counts, strict=True):
        time = _seconds(sum(result.seconds for result in results))
        suite = ET.SubElement(root, "testsuite", {"name": _text(model), "time": time, **count})
        for result in results:
            _case(run, result, suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(run: MatrixResults, result: CellResult, suite: ET.Element) -> None:
    cell = result.cell
    names = {"name": _text(cell.label), "classname": _text(cell.model), "time": _seconds(result.seconds)}
    case = ET.SubElement(suite, "testcase", names)
    if kind := _kind(run, result):
        rules = sorted({problem.rule for problem in result.problems if problem.level != "note"})
        facts = {"message": _text(detail_of(result))} | ({} if kind == "skipped" else {"type": ", ".join(rules)})
        ET.SubElement(case, kind, facts).text = _details(result)
    elif result.problems:
        ET.SubElement(case, "system-out").text = _details(result)


def _kind(run: MatrixResults, result: CellResult) -> str:
    verdict = run.verdict(result)
    if verdict in {"known", "cancelled"}:
        return "skipped"
    if verdict != "failed":
        return ""
    return "failure" if result.state != "failed" or result.exit_code in _REFUSED else "error"


def _counts(run: MatrixResults, results: list[CellResult]) -> dict[str, str]:
    kinds = [_kind(run, result) for result in results]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(kinds)), **{name: str(kinds.count(kind)) for name, kind in counted.items()}}


def _details(result: CellResult) -> str:
    lines = [f"{result.file} -> {result.cell.output}: {result.state}"]
    for problem in result.problems:
        lines.append(f"{problem.level}: {problem.rule}: {problem.message}")
        lines += [f"  node: {problem.node}"] if problem.node else []
        lines += [f"  hint: {problem.hint}"] if problem.hint else []
    return _text("\n".join(lines))


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
