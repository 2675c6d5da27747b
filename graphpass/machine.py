"""Cores and memory that are available to this process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: Share of the available memory for one proof or trial, since several may run in parallel.
MEMORY_SHARE = 0.5


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Return the available memory of this machine or its container, in bytes."""
    import psutil

    free: int = psutil.virtual_memory().available
    return min(free, memory_of_group(Path("/sys/fs/cgroup"), free))


def memory_of_group(group: Path, unlimited: int) -> int:
    """Return the available bytes of a control group.

    The kernel counts cached files as used, but evicts them on demand, so they count as available.

    Args:
        group: Folder of the group, in the format of cgroup v2.
        unlimited: Bytes to return if the group has no limit.
    """
    with contextlib.suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached = sum(int(counts.get(name, "0")) for name in ("active_file", "inactive_file"))
        return limit - used + cached
    return unlimited
