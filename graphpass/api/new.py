"""Write packages of new passes and targets."""

from __future__ import annotations

from pathlib import Path

from graphpass.jobs.new import write_package

from .reading import StrPath


def new_pass(name: str, folder: StrPath | None = None) -> Path:
    """Write a package with a pass and its test.

    Args:
        name: Name of the pass, in kebab-case.
        folder: The folder to write to, ``graphpass-NAME`` by default.

    Returns:
        The folder.

    Raises:
        UsageError: GP276, the name is taken or not in kebab-case, or the folder exists.
        WriteError: GP501, the file system's error.
    """
    return write_package("pass", name, Path(folder or f"graphpass-{name}"))


def new_target(name: str, folder: StrPath | None = None) -> Path:
    """Write a package with a target and its test.

    Args:
        name: Name of the target, in kebab-case.
        folder: The folder to write to, ``graphpass-NAME`` by default.

    Returns:
        The folder.

    Raises:
        UsageError: GP276, the name is taken or not in kebab-case, or the folder exists.
        WriteError: GP501, the file system's error.
    """
    return write_package("target", name, Path(folder or f"graphpass-{name}"))
