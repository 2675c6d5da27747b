"""Say in JSON which form it has, and what wrote it when."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

#: Rises if a field goes or changes its meaning, not if one is added.
SCHEMA_VERSION = 1


def with_header(report: Mapping[str, Any]) -> dict[str, Any]:
    """Add the schema's version, that of graphpass, and the time in UTC."""
    written = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"schema_version": SCHEMA_VERSION, "graphpass": version("graphpass"), "time": written, **report}
