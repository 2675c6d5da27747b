"""Report on runtimes and adapters, as text and as JSON (``schemas/devices.json``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphpass.runtime.devices import Runtime


def devices_text(runtimes: Sequence[Runtime]) -> str:
    """Return a line for each runtime, each adapter and each missing package."""
    return "\n".join(line for runtime in runtimes for line in _lines(runtime))


def devices_json(runtimes: Sequence[Runtime]) -> dict[str, Any]:
    """Return the object of ``graphpass devices --format json``."""
    return {
        "runtimes": [
            {
                "name": runtime.name,
                "version": runtime.version,
                "adapters": [{"name": each.name, "software": each.is_software} for each in runtime.adapters],
                "missing": runtime.missing,
            }
            for runtime in runtimes
        ]
    }


def _lines(runtime: Runtime) -> Iterator[str]:
    yield f"{runtime.name}: {runtime.version or 'not found'}"
    for adapter in runtime.adapters:
        yield f"    {adapter.name}{' (by a software driver)' if adapter.is_software else ''}"
    if runtime.missing is not None:
        yield f"    missing: {runtime.missing}"
