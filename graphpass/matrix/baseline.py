"""Baselines: files of known findings, which do not fail a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from graphpass.errors import UsageError
from graphpass.storage.documents import read_json, regular
from graphpass.storage.staging import write_whole

from .reports.files import dumped
from .run import MatrixResults

_VERSION = 1

#: Keys of a finding in a baseline file; only the fingerprint is compared.
_KEYS = ("fingerprint", "cell", "rule", "node", "message")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The known findings in a file; none if the file does not exist.

    Attributes:
        file: The file.
        entries: The known findings.
    """

    file: Path
    entries: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def read(cls, file: Path) -> Baseline:
        """Read a baseline from a file.

        Returns:
            The baseline; without findings if the file does not exist.

        Raises:
            UsageError: GP235, the file is not a baseline.
        """
        try:
            content = read_json(regular(file).read_bytes())
            if content["baseline"] == _VERSION:
                return cls(file, tuple({key: str(finding[key]) for key in _KEYS} for finding in content["findings"]))
        except FileNotFoundError:
            return cls(file)
        except (OSError, ValueError, LookupError, TypeError):
            pass
        hint = "restore it from version control, or remove it and run with --update-baseline"
        raise UsageError("GP235", f"{file} is not a baseline of graphpass, or it is damaged", hint)

    @property
    def fingerprints(self) -> frozenset[str]:
        """Return the fingerprints of the findings."""
        return frozenset(entry["fingerprint"] for entry in self.entries)

    def unused(self, run: MatrixResults, cells: Collection[str]) -> tuple[Mapping[str, str], ...]:
        """Return the entries that no longer occur.

        Entries of cells that were cancelled or did not run are excluded.

        Args:
            run: The run.
            cells: Names of all cells of the configuration; entries of other cells are unused.
        """
        ended = {result.cell.id: result for result in run.results if result.state != "cancelled"}
        return tuple(
            entry
            for entry in self.entries
            if entry["cell"] not in cells
            or (entry["cell"] in ended and entry["fingerprint"] not in ended[entry["cell"]].fingerprints)
        )

    def updated(self, run: MatrixResults, cells: Collection[str]) -> Baseline:
        """Return the baseline with the errors and warnings of a run, sorted by cell.

        Args:
            run: The run.
            cells: Names of all cells of the configuration; those that did not run keep their findings.
        """
        ran = {result.cell.id for result in run.results if result.state != "cancelled"}
        entries = [entry for entry in self.entries if entry["cell"] in cells and entry["cell"] not in ran]
        entries += [
            {
                "fingerprint": finding.fingerprint,
                "cell": finding.result.cell.id,
                "rule": finding.problem.rule,
                "node": finding.problem.node,
                "message": finding.problem.message.partition("\n")[0],
            }
            for finding in run.findings
            if finding.problem.level != "note"
        ]
        return replace(self, entries=tuple(sorted(entries, key=lambda entry: (entry["cell"], entry["fingerprint"]))))

    def write(self) -> None:
        """Write the file atomically.

        Raises:
            WriteError: GP501, the file system's error.
        """
        write_whole(self.file, dumped({"baseline": _VERSION, "findings": list(self.entries)}))
