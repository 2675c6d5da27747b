"""Write packages of new passes and targets."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal

from graphpass.errors import UsageError
from graphpass.storage.staging import staging

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def write_package(kind: Literal["pass", "target"], name: str, folder: Path) -> Path:
    """Write a package with an example and a passing test.

    Args:
        kind: Whether the package adds a pass or a target.
        name: Name of the pass or target, in kebab-case.
        folder: The folder to write to; it must not exist.

    Returns:
        The folder.

    Raises:
        UsageError: GP276, the name is taken, a keyword or not in kebab-case, or the folder exists.
        WriteError: GP501, the file system's error.
    """
    from graphpass.engine.registry import pass_names, target_names

    if not _NAME.fullmatch(name):
        raise UsageError("GP276", f"{name!r} is not in kebab-case", "for example: fuse-swish")
    if keyword.iskeyword(name):
        reason = f"{name!r} is a keyword of Python, which no module can have as its name"
        raise UsageError("GP276", reason, "for example: fuse-swish")
    if name in (pass_names() if kind == "pass" else target_names()):
        raise UsageError("GP276", f"{kind} {name} exists", "choose another name")
    if folder.exists():
        raise UsageError("GP276", f"{folder} exists", "choose another folder with -o")
    module = name.replace("-", "_")
    package = f"graphpass_{module}"
    values = {"name": name, "kind": kind, "module": module, "package": package}
    values["class_name"] = "".join(part.capitalize() for part in name.split("-"))
    values["group"], values["listing"] = ("passes", f"explain {name}") if kind == "pass" else ("targets", "targets")
    parts = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{package}/{module}.py": f"{kind}.py",
        f"tests/test_{module}.py": f"test_{kind}.py",
    }
    if kind == "pass":
        parts[f"tests/{module}.graph"] = "pass.graph"
    templates = files("graphpass.jobs") / "templates"
    with staging(folder) as staged:
        for path, template in parts.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            text = Template((templates / f"{template}.in").read_text("utf-8")).substitute(values)
            (staged / path).write_text(text, "utf-8")
        (staged / package / "__init__.py").write_text(f'"""Adds the {kind} `{name}` to graphpass."""\n', "utf-8")
    return folder
