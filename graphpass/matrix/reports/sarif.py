"""Report on a run as SARIF 2.1.0, which code scanning reads."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from graphpass.error_catalog import CATALOG

from ..run import Finding, Run

#: Results that GitHub shows of a run.
_MOST = 5_000

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

#: Rules that are no errors of the catalog or passes.
_OTHERS = {
    "tokenizer": "Tokenizers beside a model become models that openvino.genai reads.",
    "verify": "Results are compared with their inputs.",
}


def as_sarif(run: Run, root: Path) -> dict[str, Any]:
    """Return the object of a SARIF file with one run.

    Nodes of graphs are logical locations, model files the physical ones. Fingerprints are made of rule, cell and node.

    Args:
        run: The run.
        root: The folder that files are given relative to, which is that of the sources.
    """
    findings = run.findings
    shown = findings[:_MOST]
    rules = list(dict.fromkeys(finding.problem.rule for finding in shown))
    left = len(findings) - len(shown)
    notices = [_notice(f"{left} findings of the lowest levels are left out: {_MOST} are shown")] if left else []
    driver = {
        "name": "graphpass",
        "semanticVersion": metadata.version("graphpass"),
        "rules": [_rule(rule) for rule in rules],
    }
    told: dict[str, Any] = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "graphpass/ci/"},
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
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [told]}


def short_path(file: str, root: Path) -> str:
    """Return a file relative to ``root``, absolute if it lies elsewhere.

    Addresses stay as they are.
    """
    if "://" in file:
        return file
    path = Path(os.path.abspath(file))
    return path.relative_to(root.absolute()).as_posix() if path.is_relative_to(root.absolute()) else str(path)


def _result(finding: Finding, rule: int, root: Path) -> dict[str, Any]:
    problem, cell = finding.problem, finding.result.cell
    # Graphs have no lines, but GitHub shows no result without one.
    physical = {"artifactLocation": _artifact(finding.result.file, root), "region": {"startLine": 1}}
    location: dict[str, Any] = {"physicalLocation": physical}
    kinds = {name: kind for name, kind in ((problem.subject, "subject"), (problem.node, "node")) if name}
    if kinds:
        location["logicalLocations"] = [
            {"name": name, "fullyQualifiedName": f"{cell.model}::{name}", "kind": kind} for name, kind in kinds.items()
        ]
    words = f"{cell.id}: {problem.message}" + (f"\nhint: {problem.hint}" if problem.hint else "")
    told = {
        "ruleId": problem.rule,
        "ruleIndex": rule,
        "level": problem.level,
        "message": {"text": words},
        "locations": [location],
        "partialFingerprints": {"graphpass/v1": finding.fingerprint},
        "baselineState": "unchanged" if finding.known else "new",
        "properties": {"model": cell.model, "target": cell.label},
    }
    return told | (
        {"suppressions": [{"kind": "external", "justification": "the baseline holds it"}]} if finding.known else {}
    )


def _artifact(file: str, root: Path) -> dict[str, str]:
    path = short_path(file, root)
    if "://" in path:
        return {"uri": path}
    return {"uri": Path(path).as_uri()} if os.path.isabs(path) else {"uri": quote(path), "uriBaseId": "%SRCROOT%"}


def _rule(rule: str) -> dict[str, Any]:
    words = CATALOG.get(rule) or _OTHERS.get(rule) or _of_pass(rule)
    first = words.partition(". ")[0].rstrip(".") + "."
    help_text = f"graphpass explain {rule}" if rule not in _OTHERS else words
    return {
        "id": rule,
        "shortDescription": {"text": first},
        "fullDescription": {"text": words},
        "help": {"text": help_text},
    }


def _of_pass(name: str) -> str:
    from graphpass.engine.options import documentation
    from graphpass.engine.registry import get_pass

    return documentation(get_pass(name)).partition("\n")[0] or f"The pass {name}."


def _notice(text: str) -> dict[str, Any]:
    return {"level": "warning", "message": {"text": text}}
