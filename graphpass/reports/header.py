"""Header of JSON reports: schema version, version of graphpass, and time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

#: Incremented if a field is removed or changes its meaning, not if a field is added.
SCHEMA_VERSION = 1


def with_header(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report with schema version, version of graphpass, and time in UTC."""
    written = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"schema_version": SCHEMA_VERSION, "graphpass": version("graphpass"), "time": written, **report}
