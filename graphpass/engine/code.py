"""Digests of code: results depend on it, and it also changes between releases."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath

#: Packages that an editable installation stores outside the folder of their parent.
_APART = {"graphpass": ("graphpass.passes",)}

#: Packages whose code does not affect results.
_OUTSIDE = ("graphpass/cli/",)


def digest_of_code(modules: Iterable[str]) -> str:
    """Return a digest of the Python files of top-level packages or modules.

    Args:
        modules: Names of the packages or modules. Only parents of packages are imported. A missing module adds nothing
            to the digest.
    """
    files: dict[str, Path] = {}
    for module in sorted(set(modules)):
        for name in (module, *_APART.get(module, ())):
            if (spec := importlib.util.find_spec(name)) is not None:
                files |= _files(name.replace(".", "/"), spec)
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        if not name.startswith(_OUTSIDE):
            digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _files(name: str, spec: ModuleSpec) -> Iterator[tuple[str, Path]]:
    if spec.submodule_search_locations is None:
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield f"{name}.py", Path(spec.origin)
        return
    for location in spec.submodule_search_locations:
        for folder, _, names in os.walk(location):
            inside = PurePosixPath(name, os.path.relpath(folder, location))
            for file in names:
                if file.endswith(".py"):
                    yield str(inside / file), Path(folder, file)
