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
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        free = min(free, limit - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    return free
