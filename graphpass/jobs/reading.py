"""Reading of a job's input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from graphpass.errors import UsageError
from graphpass.io import load
from graphpass.ir.declaration import parse_declaration
from graphpass.ir.model import Model
from graphpass.model_files import find_model, model_folder
from graphpass.progress import stage


def read_model(
    path: Path, declared: Iterable[str] = (), choose: Callable[[Path], Path | None] = lambda _: None
) -> Model:
    """Read the model at ``path``.

    Args:
        path: A file, or a folder with one model.
        declared: Declarations of unknown caches: ``past_0=kv,sequence=2``.
        choose: Returns one of several models in a folder; ``None`` to refuse the folder.

    Returns:
        The model, in which ``declared`` takes precedence over declarations of the file.

    Raises:
        ReadError: As `graphpass.io.load`.
        UsageError: GP201, the folder has several models; GP218, a declaration lacks a kind or axis.
    """
    new = {declaration.name: declaration for declaration in map(parse_declaration, declared)}
    try:
        file = find_model(path)
    except UsageError:
        chosen = choose(model_folder(path))
        if chosen is None:
            raise
        file = chosen
    with stage(f"reading {file}"):
        model = load(file)
        if new:
            known = {declaration.name: declaration for declaration in model.declarations}
            model.declare((known | new).values())
        return model
