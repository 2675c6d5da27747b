"""Measure what the machine has left for a program."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: Part of the available memory that one proof or trial may take; others run beside it.
MEMORY_SHARE = 0.5


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Return the bytes of memory that this machine or its container has left."""
    import psutil

    free: int = psutil.virtual_memory().available
    return min(free, memory_of_group(Path("/sys/fs/cgroup"), free))


def memory_of_group(group: Path, unlimited: int) -> int:
    """Return the bytes that a control group has left; ``unlimited`` if it has no limit.

    Files that the kernel keeps in memory count as used there, and go when a program needs the room.
    """
    with contextlib.suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        kept = sum(int(counts.get(name, "0")) for name in ("active_file", "inactive_file"))
        return limit - used + kept
    return unlimited
