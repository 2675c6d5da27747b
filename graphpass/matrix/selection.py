"""Selection of cells by patterns, shards and last failures."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphpass.errors import UsageError
from graphpass.reports.text import some_of
from graphpass.storage import memory
from graphpass.storage.documents import read_json

from .cells import Cell
from .run import MatrixResults


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several disjoint parts of a matrix.

    Attributes:
        number: Number of the shard, from 1.
        count: Number of shards.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard of a text such as ``1/4``, counted from 1.

        Raises:
            ValueError: The text is not a shard.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        shard = None if match is None else cls(int(match[1]), int(match[2]))
        if shard is None or not 1 <= shard.number <= shard.count:
            raise ValueError(f"expected a shard such as 1/4, got {text}")
        return shard

    def of(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        """Return every ``count``-th cell, which distributes the targets of a large model over shards."""
        return tuple(cells[self.number - 1 :: self.count])

    def file(self, report: Path) -> Path:
        """Return the file of this shard's report: ``report-1-of-4.json``."""
        return report.with_name(f"{report.stem}-{self.number}-of-{self.count}{report.suffix}")


def selected(cells: Sequence[Cell], patterns: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells whose names match a pattern.

    Args:
        cells: The cells to select from.
        patterns: Names or shell patterns such as ``llama*:npu``; empty selects all cells.

    Raises:
        UsageError: GP234, no cell matches.
    """
    chosen = tuple(cell for cell in cells if not patterns or _is_selected(cell, patterns))
    if not chosen:
        hint = f"there are {some_of([cell.id for cell in cells])}"
        raise UsageError("GP234", f"no cell matches {' or '.join(patterns)}", hint)
    return chosen


def _is_selected(cell: Cell, patterns: Iterable[str]) -> bool:
    return any(cell.id == pattern or fnmatch.fnmatchcase(cell.id, pattern) for pattern in patterns)


def last_failed(cells: Sequence[Cell], config: Path) -> tuple[Cell, ...]:
    """Return the cells that failed in their last run; all cells before the first run.

    Args:
        cells: The cells to select from.
        config: The configuration file, by whose path `note_failed` recorded them.
    """
    failed = _failed(config)
    return tuple(cells) if failed is None else tuple(cell for cell in cells if cell.id in failed)


def note_failed(run: MatrixResults, config: Path) -> None:
    """Record the failed cells in the user's cache folder, for `last_failed`.

    Args:
        run: The run; failures of cells outside of it remain recorded.
        config: The configuration file, by whose path they are recorded.
    """
    verdicts = {result.cell.id: run.verdict(result) for result in run.results}
    failed = {name for name, verdict in verdicts.items() if verdict in {"failed", "cancelled"}}
    memory.remember(memory.memory_of("runs", config), sorted(failed | ((_failed(config) or set()) - verdicts.keys())))


def _failed(config: Path) -> set[str] | None:
    try:
        return set(map(str, read_json(memory.memory_of("runs", config).read_bytes())))
    except (OSError, ValueError, TypeError):  # the record is missing or damaged
        return None
