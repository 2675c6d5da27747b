"""Describe the cells of a matrix of models and targets, and their results."""

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
    """Limits the result of a cell; ``None`` is not a limit.

    Attributes:
        bytes: Size of all files of the result.
        operators: Operators of the largest graph of the result.
        bytes_per_token: Memory of the caches for each token.
        seconds: Time of the conversion, verification included.
        memory: Bytes that the cell's process has at most in memory.
    """

    bytes: int | None = None
    operators: int | None = None
    bytes_per_token: int | None = None
    seconds: float | None = None
    memory: int | None = None


#: Settings of several values.
LISTS = ("caches", "allow")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settles the conversion of a cell.

    Attributes:
        caches: Declared kinds of caches: ``past_0=kv,sequence=2``.
        verify: Whether the result is compared with the input, and tried with its runtime.
        verify_each: Whether it is compared after each pass, too.
        edits: Whether caches are edited while the two are compared.
        steps: Greedy steps after each prefill.
        atol: Absolute tolerance; ``None`` for that of the models' types.
        rtol: Relative tolerance; the same.
        require: Strength of the proof that the result needs; see `graphpass.jobs.job.Proof`.
        allow: Names of nodes that may make the result differ; see there.
        allow_unfused: Whether a result that breaks its target's contract is written, with warnings.
        tokenizer: Whether the tokenizer is converted.
        weights: Way of the weights to the result; see `graphpass.io.stage_model`.
        picture: Whether the model before and after is drawn for reports.
        timeout: Seconds after which the cell fails; ``None`` for no limit.
        budgets: Limits on the result.
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
    """Describes one conversion: a model for a target, or through a pipeline.

    Attributes:
        model: The model's name.
        label: Name of the target or pipeline in reports, ``gpu{cache=reorder}`` for example.
        source: The model's file or folder.
        output: The folder of the result.
        target: The target with options; ``None`` for a pipeline.
        pipeline: The pipeline's text; ``None`` for a target.
        published: The folder of the last published result, to compare with.
        settings: Its settings.
        refuse_changes: Whether a result that differs from the published one is refused.
        expect: Id of the error that the cell is expected to end with; ``None`` for none.
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
        """Return ``model:label``, by which cells are selected."""
        return f"{self.model}:{self.label}"

    def to_json(self) -> dict[str, Any]:
        """Return the object of reports."""
        return asdict(self) | {"id": self.id}


@dataclass(frozen=True, slots=True)
class Problem:
    """Reports one finding of a cell.

    Attributes:
        rule: Id of the error, or name of the pass that noted it.
        level: ``error`` fails the cell.
        message: The finding, for people.
        hint: The next step.
        subject: The attention, cache or output that it is about; empty for the model.
        node: Name of the node at fault; empty if there is none.
    """

    rule: str
    level: Level
    message: str
    hint: str = ""
    subject: str = ""
    node: str = ""


#: Errors that may pass: somebody wrote to the input, a storage did not answer, or two processes met at one result.
_PASSING = frozenset({"GP110", "GP115", "GP504", "GP505"})


@dataclass(frozen=True, slots=True)
class CellResult:
    """Reports on a cell; plain data that processes exchange and JSON holds.

    Attributes:
        cell: The cell.
        state: ``cancelled`` if the run ended before the cell did.
        problems: Findings, errors first.
        exit_code: Exit code that ``graphpass convert`` would end with.
        file: The model's file; the cell's source if there is none.
        outcome: Object of ``graphpass convert --format json``; empty if nothing was converted.
        changed: Whether the result differs from the last published one; ``None`` if there is none.
        changes: The differences in one line each.
        seconds: Time of the cell.
        memory: Bytes that its process had at most in memory; ``None`` if unknown.
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
        """Return the result of a cell that failed before it began."""
        problem = Problem(error.id, "error", error.message, error.hint or "")
        return cls(cell, "failed", (problem,), error.exit_code, cell.source)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Return a digest of rule, cell and place of each problem.

        They stay the same whatever words and numbers a message has; problems of one place are numbered.
        """
        met: Counter[tuple[str, ...]] = Counter()
        fingerprints = []
        for problem in self.problems:
            place = (problem.rule, self.cell.model, self.cell.label, problem.subject, problem.node)
            fingerprints.append(hashlib.sha256("\0".join((*place, str(met[place]))).encode()).hexdigest()[:32])
            met[place] += 1
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
    """Return whether another try may succeed, as after an error of a storage."""
    return not _PASSING.isdisjoint(problem.rule for problem in result.problems)


def internal_error(cell: Cell, error: Exception) -> CellResult:
    """Return the result of a cell that met a bug of graphpass."""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    cause = PassFailedError("GP408", f"internal error: {words}", "please report it with the model")
    return replace(CellResult.of_error(cell, cause), exit_code=70)


def hold_to_expectation(result: CellResult) -> CellResult:
    """Add an error to a result that did not end with the expected one."""
    expected, rules = result.cell.expect, {problem.rule for problem in result.problems if problem.level == "error"}
    if expected is None or expected in rules or result.state == "cancelled":
        return result
    ended = f"it ended with {', '.join(sorted(rules))}" if rules else f"it was {result.state}"
    hint = "remove expect from the configuration" if not rules else ""
    problem = Problem("GP605", "error", f"expected {expected}, but {ended}", hint)
    return replace(result, problems=(problem, *result.problems), exit_code=result.exit_code or 1)
