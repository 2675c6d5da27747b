"""Formatting of tables, ranges, axes and sizes as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from graphpass.ir.cache import Axes
from graphpass.printable import on_one_line
from graphpass.progress import Timing


def columns(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Return rows as lines with aligned columns.

    Args:
        rows: Rows of the same number of cells, which are escaped.
        indent: Beginning of each line.
    """
    rows = [tuple(map(on_one_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def shortened(lines: Sequence[str], most: int, *, verbose: bool = False) -> list[str]:
    """Return the first lines, and a line with the number of omitted lines.

    Args:
        lines: The lines; the added line has the indentation of the first.
        most: Largest number of lines, without the added line.
        verbose: Whether to return all lines.
    """
    if verbose or len(lines) <= most:
        return list(lines)
    indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
    return [*lines[:most], f"{indent}and {len(lines) - most} more; --verbose prints all"]


def some_of(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and the number of those left out: ``a, b and 7 more``.

    Args:
        names: The names.
        most: Largest number of names to return.
    """
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def spoken(documentation: str) -> str:
    """Return documentation for a terminal, without reST markup and without the section of options."""
    without = re.sub(r"\n\n *Options:\n(?: +\S.*(?:\n|$))+", "\n", documentation)
    return re.sub(r"``(.+?)``", r"\1", without, flags=re.DOTALL)


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as ranges: ``0-3, 5, 7-8``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def layers_in_words(layers: Iterable[int | None]) -> str:
    """Return ``layers 0-3, 5``; ``no layer`` if all are unknown."""
    known = sorted({layer for layer in layers if layer is not None})
    if not known:
        return "no layer"
    return f"layer {known[0]}" if len(known) == 1 else f"layers {ranges(known)}"


def axes_in_words(axes: Axes) -> str:
    """Return ``batch 0, sequence 2``; ``unknown`` if all axes are unknown."""
    return ", ".join(f"{name} {axis}" for name, axis in asdict(axes).items() if axis is not None) or "unknown"


def time_table(timings: Iterable[Timing]) -> list[str]:
    """Return a line for each pass and analysis, with time, runs and peak memory."""
    rows = [("kind", "name", "own time", "runs", "peak memory")]
    for kind in ("pass", "analysis"):
        rows += [
            (
                kind,
                timing.name,
                f"{timing.seconds:.3f} s",
                str(timing.runs),
                in_bytes(timing.peak) if timing.peak else "unknown",
            )
            for timing in timings
            if timing.kind == kind
        ]
    return columns(rows)


def in_bytes(count: float) -> str:
    """Return a size in bytes with three digits: ``1.54 KB``."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
