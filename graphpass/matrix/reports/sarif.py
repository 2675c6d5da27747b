"""Report on a run as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from graphpass.error_catalog import CATALOG

from ..cells import CellResult
from ..run import CellFinding, MatrixResults

#: Largest number of results of a run that GitHub shows.
_MOST = 5_000

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_PAGES = "https://github.com/graphpass/graphpass/blob/v{version}/docs"

#: Rules that are not in the error catalog: text, page, default level.
_OTHERS = {"verify": ("The comparison with the input is incomplete.", "verification.md", "warning")}

#: Tags by the first digit of the error id.
_TAGS = {"1": "input", "2": "usage", "3": "unsupported", "4": "execution", "5": "output", "6": "verification"}


def as_sarif(run: MatrixResults, root: Path) -> dict[str, Any]:
    """Return the object of a SARIF file with one run.

    | SARIF | content |
    | --- | --- |
    | ``results`` | errors and warnings; other reports have the notes, too |
    | ``logicalLocations`` | cell, subject and node |
    | ``physicalLocation`` | the model file, always at line 1 |
    | ``partialFingerprints`` | digest of rule, cell, subject and node, which distinguishes results of one file |
    | ``automationDetails`` | absent, so that the category of upload-sarif applies |

    Args:
        run: The run.
        root: The folder of the sources; paths are relative to it.
    """
    findings = [finding for finding in run.findings if finding.problem.level != "note"]
    shown = findings[:_MOST]
    rules = list(dict.fromkeys(finding.problem.rule for finding in shown))
    left = len(findings) - len(shown)
    notices = [_notice(f"{left} findings of the lowest levels are omitted: the limit is {_MOST}")] if left else []
    driver = {
        "name": "graphpass",
        "semanticVersion": metadata.version("graphpass"),
        "informationUri": "https://github.com/graphpass/graphpass",
        "rules": [_rule(rule) for rule in rules],
    }
    sarif_run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not run.interrupted and run.exit_code in {0, 1},
                "exitCode": run.exit_code,
                "toolExecutionNotifications": notices,
            }
        ],
        "results": [_result(finding, rules.index(finding.problem.rule), root) for finding in shown],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [sarif_run]}


def short_path(file: str, root: Path) -> str:
    """Return a path relative to the folder of the sources, or absolute outside of it.

    Args:
        file: A path, or an address, which is unchanged.
        root: The folder of the sources.
    """
    if "://" in file:
        return file
    path = Path(os.path.abspath(file))
    return path.relative_to(root.absolute()).as_posix() if path.is_relative_to(root.absolute()) else str(path)


def _result(finding: CellFinding, rule: int, root: Path) -> dict[str, Any]:
    problem, cell = finding.problem, finding.result.cell
    # GitHub requires a line; graphs have none.
    physical = {"artifactLocation": _artifact(finding.result, root), "region": {"startLine": 1}}
    kinds = {name: kind for name, kind in ((problem.subject, "subject"), (problem.node, "node")) if name}
    logical = [{"name": cell.id, "fullyQualifiedName": cell.id, "kind": "module"}]
    logical += [
        {"name": name, "fullyQualifiedName": f"{cell.id}::{name}", "kind": kind} for name, kind in kinds.items()
    ]
    message = f"{cell.id}: {problem.message}" + (f"\nhint: {problem.hint}" if problem.hint else "")
    entry = {
        "ruleId": problem.rule,
        "ruleIndex": rule,
        "level": problem.level,
        "message": {"text": message},
        "locations": [{"physicalLocation": physical, "logicalLocations": logical}],
        "partialFingerprints": {
            # The format of GitHub's own fingerprints: 64 bits, and a counter.
            "primaryLocationLineHash": f"{finding.fingerprint[:16]}:1",
            "graphpass/v1": finding.fingerprint,
        },
        "baselineState": "unchanged" if finding.known else "new",
        "properties": {"model": cell.model, "target": cell.label, "file": finding.result.file},
    }
    return entry | (
        {"suppressions": [{"kind": "external", "justification": "in the baseline"}]} if finding.known else {}
    )


def _artifact(result: CellResult, root: Path) -> dict[str, str]:
    """Return the location of the model file: relative to the sources, or an address.

    A file outside of the sources is named by model and file name, since its path differs between machines and would
    raise new alerts.
    """
    path = short_path(result.file, root)
    if "://" in path:
        return {"uri": path}
    named = f"{result.cell.model}/{Path(path).name}" if os.path.isabs(path) else path
    return {"uri": quote(named), "uriBaseId": "%SRCROOT%"}


def _rule(rule: str) -> dict[str, Any]:
    page = _PAGES.format(version=metadata.version("graphpass"))
    if rule in _OTHERS:
        explanation, name, level = _OTHERS[rule]
        tag, uri = rule, f"{page}/{name}"
    else:
        explanation, level = CATALOG.get(rule, f"Error {rule} of a plug-in."), "error"
        tag, uri = _TAGS.get(rule[2:3], "plug-in"), f"{page}/errors.md#{rule.lower()}"
    first = explanation.partition(". ")[0].rstrip(".") + "."
    return {
        "id": rule,
        "name": f"{tag.capitalize()}Finding" if tag == rule else f"{tag.capitalize()}{rule}",
        "shortDescription": {"text": first},
        "fullDescription": {"text": explanation},
        "helpUri": uri,
        "help": {"text": f"{explanation}\n{uri}", "markdown": f"{explanation}\n\n[{rule}]({uri})"},
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["graphpass", tag], "precision": "very-high", "problem.severity": level},
    }


def _notice(text: str) -> dict[str, Any]:
    return {"level": "warning", "message": {"text": text}}
