"""Version, time and commit of a report."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

#: Environment variables with the commit: GitHub Actions, GitLab CI, Azure Pipelines, Jenkins.
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT")

#: Time limit of git, in seconds.
_PATIENCE = 5


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a report.

    Attributes:
        version: Version of graphpass.
        time: Time of the report in UTC, to the minute.
        commit: Commit of the sources; empty outside of CI systems and git repositories.
    """

    version: str
    time: str
    commit: str


def origin_of(root: Path) -> Origin:
    """Return the origin of a report written now.

    Args:
        root: The folder of the sources.
    """
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.now(timezone.utc) if not seconds else datetime.fromtimestamp(int(seconds), timezone.utc)
    named = next((os.environ[name] for name in _COMMITS if os.environ.get(name)), None)
    commit = _commit_in(root) if named is None else named
    return Origin(metadata.version("graphpass"), f"{now:%Y-%m-%d %H:%M} UTC", commit)


def _commit_in(root: Path) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(root), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603 - fixed arguments, no shell
    except subprocess.TimeoutExpired:  # for example on a network drive
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
