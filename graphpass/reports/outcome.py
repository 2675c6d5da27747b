"""Report on written results, as text and as JSON (``schemas/result.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.findings import ContractReport as Findings
from graphpass.engine.manager import PassRecord
from graphpass.engine.passes import Pass, Skipped
from graphpass.engine.pipeline import format_passes
from graphpass.io import Written
from graphpass.ir.model import Model
from graphpass.printable import on_one_line
from graphpass.progress import Timing
from graphpass.reports.contract import summarize_contract
from graphpass.reports.inventory import inventory_in_short, runs_with
from graphpass.reports.report import Report
from graphpass.reports.text import columns, in_bytes, shortened, time_table
from graphpass.reports.totals import total_bytes
from graphpass.verify import Comparison

#: Largest number of lines about passes, and about each kind of remarks, for a text of at most 40 lines.
_PASSES, _REMARKS = 8, 3


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Report on the pipeline of one model.

    Attributes:
        name: ``encoder`` or ``decoder``; empty if the result has one model.
        file: Name of the written file.
        before: The input.
        after: The result.
        passes: The pipeline.
        records: Outcome of each pass.
        timings: Time of each pass and analysis, with ``--time-passes``.
    """

    name: str
    file: str
    before: Model
    after: Model
    passes: tuple[Pass[Any], ...]
    records: tuple[PassRecord, ...]
    timings: tuple[Timing, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A written file: path relative to the result's folder, and size in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Outcome(Report):
    """Report on a job that writes a result.

    Attributes:
        input: File or folder of the input.
        output: Folder of the result.
        graphs: The model files of the result.
        sources: The model and weight files of the input.
        target: The target, with options that differ from their defaults; empty for a pipeline of passes.
        up_to_date: Whether an earlier job wrote the same result, so that nothing was converted.
        models: One report for each model; empty if the result is up to date.
        contract: The check of the target's contract; ``None`` without rules.
        comparison: The comparison with the input; ``None`` without verification.
        files: All files of the result.
        written: The weight files, copied or shared.
        notes: Notes about configurations and tokenizers.

    Examples:
        >>> import graphpass
        >>> model = "build/fixtures/llama/onnx"
        >>> outcome = graphpass.convert(model, "demo-output/outcome", "cpu", verify=False, tokenizer=False)
        >>> outcome.target, outcome.comparison
        ('cpu', None)
    """

    input: Path
    output: Path
    graphs: tuple[Path, ...]
    sources: tuple[Path, ...]
    target: str = ""
    up_to_date: bool = False
    models: tuple[ModelReport, ...] = ()
    contract: Findings | None = None
    comparison: Comparison | None = None
    files: tuple[WrittenFile, ...] = ()
    written: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()

    def text(self, *, verbose: bool = False) -> str:
        """Return the text of ``graphpass convert`` and ``graphpass run``, with the verdict at the end.

        Args:
            verbose: Whether to list all passes, files and sequences; otherwise the text has at most 40 lines.
        """
        if self.up_to_date:
            same = "is up to date: the same input, pipeline, options and versions; nothing was done"
            return "\n".join(f"{graph} {same}" for graph in self.graphs)
        lines: list[str] = []
        if self.target:
            path = self.output if len(self.graphs) > 1 else self.graphs[0]
            lines += [f"{on_one_line(str(self.input))} -> {on_one_line(str(path))} for {self.target}"]
        for report in self.models:
            lines += ["", *_before_and_after(report), ""] if self.target else []
            lines += passes_text(report, _PASSES // len(self.models), verbose=verbose)
        lines += ["", *files_text(self.output, self.files, self.written, self.notes, verbose=verbose)]
        if self.contract is not None:
            contract, *flaws = summarize_contract(self.contract)
            lines += ["", contract, *shortened(flaws, _REMARKS, verbose=verbose)]
        if self.comparison is not None:
            *details, verdict = proof_text(self.comparison, verbose=verbose)
            lines += ["", *details, f"verified  {verdict}"]
        elif self.target:
            lines += ["", "verified  not verified (--no-verify)"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``convert --format json`` and ``run --format json``."""
        contract = self.contract
        return {
            "input": str(self.input),
            "output": str(self.output),
            "target": self.target or None,
            "up_to_date": self.up_to_date,
            "graphs": [str(graph) for graph in self.graphs],
            "models": [_model(report) for report in self.models],
            "contract": None if contract is None else {"holds": contract.holds, **asdict(contract)},
            "verification": None if self.comparison is None else self.comparison.to_json(),
            "files": [asdict(file) for file in self.files],
            "shared_weights": shared_json(self.written),
            "notes": list(self.notes),
        }


def sources_of(models: Iterable[Model]) -> tuple[Path, ...]:
    """Return the model and weight files of models that were read from files."""
    files = [file for model in models for file in (model.path, *(file.path for file in model.weight_files))]
    return tuple(dict.fromkeys(file for file in files if file is not None))


def passes_text(report: ModelReport, most: int = _PASSES, *, verbose: bool = False) -> list[str]:
    """Return lines about a pipeline: its text, outcome and time of passes, notes.

    Args:
        report: Report on the model.
        most: Largest number of passes to list.
        verbose: Whether to list all passes, also those that changed nothing.
    """
    shown = [record for record in report.records if verbose or _changed(record)]
    rows = [(record.step.name, f"{record.seconds:.3f} s", record.outcome) for record in shown]
    total = sum(record.seconds for record in report.records)
    count = "" if verbose else f"{len(shown)} of {len(report.records)} passes changed the model"
    *lines, last = columns([*rows, ("total", f"{total:.3f} s", count)])
    notes = [f"  note: {record.step.name}: {on_one_line(note)}" for record in report.records for note in record.notes]
    lines = [
        f"pipeline  {format_passes(report.passes)}",
        *shortened(lines, most, verbose=verbose),
        last,
        *shortened(notes, _REMARKS, verbose=verbose),
    ]
    return [*lines, "", *time_table(report.timings)] if report.timings else lines


def _changed(record: PassRecord) -> bool:
    return not isinstance(record.result, Skipped) and record.result.changed


def proof_text(comparison: Comparison, *, verbose: bool = False) -> list[str]:
    """Return lines about a comparison; the last is the verdict.

    Args:
        comparison: The comparison of a result with its input.
        verbose: Whether to return all lines of the summary, not only 3 remarks.
    """
    _, *details = comparison.summary().splitlines()
    remarks = shortened([f"  {on_one_line(line)}" for line in comparison.remarks], _REMARKS)
    return [*(details if verbose else remarks), comparison.verdict]


def files_text(
    folder: Path,
    files: Sequence[WrittenFile],
    written: Sequence[Written],
    notes: Sequence[str],
    *,
    verbose: bool = False,
) -> list[str]:
    """Return lines about written files: sizes, warnings about shared weights, notes.

    Args:
        folder: Folder of the files.
        files: The files.
        written: Storage of the weights of each model.
        notes: Further sentences.
        verbose: Whether to list all files, warnings and notes, not only the total size and 3 warnings or notes.
    """
    warnings = [_warning(shared, result.appended) for result in written for shared in result.shared]
    if verbose:
        lines = [f"{file.name} ({in_bytes(file.bytes)})" for file in files]
        return [f"written to {folder}", *(f"  {line}" for line in [*lines, *warnings, *notes])]
    size = in_bytes(sum(file.bytes for file in files))
    count = f"{len(files)} file{'s' * (len(files) != 1)}, {size}"
    return [f"written to {folder}: {count}", *shortened([f"  {line}" for line in [*warnings, *notes]], _REMARKS)]


def files_in(folder: Path) -> tuple[WrittenFile, ...]:
    """Return the files of a staged folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return tuple(WrittenFile(str(file.relative_to(folder)), file.stat().st_size) for file in files)


def pass_records_json(report: ModelReport) -> list[dict[str, Any]]:
    """Return the objects of a pipeline's passes."""
    return [_pass(record) for record in report.records]


def shared_json(written: Sequence[Written]) -> list[dict[str, Any]]:
    """Return the objects of weight files that the result shares with the input."""
    return [{"file": str(shared), "appended": result.appended} for result in written for shared in result.shared]


def _model(report: ModelReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "file": report.file,
        "before": _summary(report.before),
        "after": _summary(report.after),
        "pipeline": format_passes(report.passes),
        "passes": pass_records_json(report),
        "timings": [asdict(timing) for timing in report.timings],
    }


def _pass(record: PassRecord) -> dict[str, Any]:
    result = record.result
    entry = {"pass": record.step.name, "seconds": record.seconds, "notes": list(record.notes)}
    if isinstance(result, Skipped):
        return entry | {"changed": False, "skipped": result.reason, "did": {}}
    return entry | {"changed": result.changed, "skipped": None, "did": dict(result.statistics)}


def _summary(model: Model) -> dict[str, Any]:
    inventory = analyze_caches(model)
    return {
        "summary": inventory_in_short(model, inventory),
        "operators": sum(1 for _ in model.graph.nodes),
        "bytes_per_token": total_bytes(inventory).bytes_per_token,
    }


def _before_and_after(report: ModelReport) -> list[str]:
    name, indent = (f"{report.name}   ", " " * (len(report.name) + 3)) if report.name else ("", "")
    width = 8 if report.name else 10
    return [
        f"{name}{'before':<{width}}{inventory_in_short(report.before, analyze_caches(report.before))}",
        f"{indent}{'after':<{width}}{inventory_in_short(report.after, analyze_caches(report.after))}",
        *runs_with(report.after),
    ]


def _warning(shared: Path, appended: int) -> str:
    grown = f"{appended} bytes were appended to it" if appended else "nothing was appended to it"
    warning = f"WARNING: the weights are shared with {shared}: {grown}. Never edit either in place."
    return warning if shared.suffix == ".bin" else f"{warning} onnx.load refuses data files that are shared."
