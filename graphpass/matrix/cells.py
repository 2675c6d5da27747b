"""Cells of a matrix of models and targets, and their results."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from graphpass.errors import GraphpassError, PassFailedError
from graphpass.io import Weights
from graphpass.jobs.job import Requirement

Level = Literal["error", "warning", "note"]

State = Literal["converted", "up to date", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits of a cell; ``None`` for no limit.

    Attributes:
        bytes: Size of all files of the result.
        operators: Operators of the result's largest model.
        bytes_per_token: Memory of the caches for each token, in bytes.
        seconds: Time of the conversion, verification included.
        memory: Peak memory of the cell's process, in bytes.
    """

    bytes: int | None = None
    operators: int | None = None
    bytes_per_token: int | None = None
    seconds: float | None = None
    memory: int | None = None


#: Settings with a list of values.
LISTS = ("caches", "allow")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a cell's conversion.

    Attributes:
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2``.
        verify: Whether to compare the result with the input, and to run a trial on the runtime.
        verify_each: Whether to compare the model with the input after each pass, too.
        edits: Whether to edit the caches during the comparison.
        steps: Greedy steps after each prefill.
        atol: Absolute tolerance; ``None`` for the default of the models' element types.
        rtol: Relative tolerance; ``None`` for the same default.
        require: ``same`` or ``proven``; see `graphpass.jobs.job.Proof`.
        allow: Names of nodes that are accepted although they may differ; see `graphpass.jobs.job.Proof`.
        allow_unfused: Whether to write a result that breaks its target's contract, with warnings.
        tokenizer: Whether to convert the tokenizer.
        weights: Whether to copy or share weight files; see `graphpass.io.stage_model`.
        picture: Whether to draw the model before and after the pipeline, for reports.
        timeout: Seconds after which the cell fails; ``None`` for no limit.
        budgets: Limits of the result.
    """

    caches: tuple[str, ...] = ()
    verify: bool = True
    verify_each: bool = False
    edits: bool = False
    steps: int = 12
    atol: float | None = None
    rtol: float | None = None
    require: Requirement = "same"
    allow: tuple[str, ...] = ()
    allow_unfused: bool = False
    tokenizer: bool = True
    weights: Weights = "auto"
    picture: bool = True
    timeout: float | None = None
    budgets: Budgets = field(default_factory=Budgets)


@dataclass(frozen=True, slots=True)
class Cell:
    """One conversion: a model for a target, or by a pipeline.

    Attributes:
        model: Name of the model.
        label: Name of the target or pipeline in reports: ``gpu{cache=reorder}``.
        source: File or folder of the model.
        output: Folder of the result.
        target: The target with options; ``None`` for a pipeline.
        pipeline: The pipeline as text; ``None`` for a target.
        published: Folder of the last published result, for the comparison.
        settings: Settings of the conversion.
        refuse_changes: Whether to refuse a result that differs from the published one.
        expect: Id of the expected error; ``None`` if the cell is expected to succeed.
    """

    model: str
    label: str
    source: str
    output: str
    target: str | None
    pipeline: str | None
    published: str
    settings: Settings = field(default_factory=Settings)
    refuse_changes: bool = False
    expect: str | None = None

    @property
    def id(self) -> str:
        """Return ``model:label``, the name for ``--select``."""
        return f"{self.model}:{self.label}"

    def to_json(self) -> dict[str, Any]:
        """Return the cell's object in JSON reports."""
        return asdict(self) | {"id": self.id}


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding of a cell.

    Attributes:
        rule: Id of the error, or name of the pass that returned the note.
        level: Severity; ``error`` fails the cell.
        message: Description of the finding.
        hint: Next step for the user.
        subject: The attention block, cache or output with the problem; empty for the model.
        node: Name of the node with the problem; empty if unknown.
    """

    rule: str
    level: Level
    message: str
    hint: str = ""
    subject: str = ""
    node: str = ""


#: Transient errors: concurrent writes to the input, storage failures, and concurrent conversions to one result.
_TRANSIENT = frozenset({"GP110", "GP115", "GP504", "GP505"})


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a cell, which is pickled between processes and written as JSON.

    Attributes:
        cell: The cell.
        state: Final state; ``cancelled`` if the run ended before the cell.
        problems: Findings, errors first.
        exit_code: Exit code of ``graphpass convert`` for this conversion.
        file: File of the model; the cell's source if no file was found.
        outcome: Object of ``graphpass convert --format json``; empty if nothing was converted.
        changed: Whether the result differs from the last published one; ``None`` if none is published.
        changes: One line for each difference from the published result.
        seconds: Time of the cell.
        memory: Peak memory of the cell's process, in bytes; ``None`` if unknown.
    """

    cell: Cell
    state: State
    problems: tuple[Problem, ...] = ()
    exit_code: int = 0
    file: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    changed: bool | None = None
    changes: tuple[str, ...] = ()
    seconds: float = 0.0
    memory: int | None = None

    @classmethod
    def of_error(cls, cell: Cell, error: GraphpassError) -> CellResult:
        """Return the result of a cell that failed before its conversion started.

        Args:
            cell: The cell.
            error: The error, which becomes the only problem.
        """
        problem = Problem(error.id, "error", error.message, error.hint or "")
        return cls(cell, "failed", (problem,), error.exit_code, cell.source)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Return a digest of rule, cell, subject and node for each problem.

        The message is excluded, so a fingerprint survives changes of its text. Problems with equal keys are numbered.
        """
        counts: Counter[tuple[str, ...]] = Counter()
        fingerprints = []
        for problem in self.problems:
            key = (problem.rule, self.cell.model, self.cell.label, problem.subject, problem.node)
            fingerprints.append(hashlib.sha256("\0".join((*key, str(counts[key]))).encode()).hexdigest()[:32])
            counts[key] += 1
        return tuple(fingerprints)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``graphpass-cell.json`` and of reports."""
        return {
            "cell": self.cell.to_json(),
            "state": self.state,
            "exit_code": self.exit_code,
            "file": self.file,
            "problems": [
                asdict(problem) | {"fingerprint": fingerprint}
                for problem, fingerprint in zip(self.problems, self.fingerprints, strict=True)
            ],
            "outcome": dict(self.outcome) or None,
            "changed": self.changed,
            "changes": list(self.changes),
            "seconds": round(self.seconds, 3),
            "memory": self.memory,
        }


def may_pass(result: CellResult) -> bool:
    """Return whether a retry may succeed, for example after a storage error."""
    return not _TRANSIENT.isdisjoint(problem.rule for problem in result.problems)


def internal_error(cell: Cell, error: Exception) -> CellResult:
    """Return the result of a cell that failed by a bug in graphpass.

    Args:
        cell: The cell.
        error: The unexpected exception, reported as GP408.
    """
    description = " ".join(f"{type(error).__name__}: {error}".split())
    cause = PassFailedError("GP408", f"internal error: {description}", "please report it with the model")
    return replace(CellResult.of_error(cell, cause), exit_code=70)


def hold_to_expectation(result: CellResult) -> CellResult:
    """Add GP605 to a result that did not end with the expected error.

    Returns:
        The result; unchanged if its cell expects no error, has the expected one or was cancelled.
    """
    expected, rules = result.cell.expect, {problem.rule for problem in result.problems if problem.level == "error"}
    if expected is None or expected in rules or result.state == "cancelled":
        return result
    end = f"got {', '.join(sorted(rules))}" if rules else f"the cell was {result.state}"
    hint = "remove expect from the configuration" if not rules else ""
    problem = Problem("GP605", "error", f"expected {expected}, but {end}", hint)
    return replace(result, problems=(problem, *result.problems), exit_code=result.exit_code or 1)
