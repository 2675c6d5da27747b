"""Read the inputs of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from graphpass.errors import UsageError
from graphpass.io import find_model, load
from graphpass.ir.declaration import parse_declaration
from graphpass.ir.model import Model
from graphpass.progress import stage


def read_model(
    path: Path, declared: Iterable[str] = (), choose: Callable[[Path], Path | None] = lambda _: None
) -> Model:
    """Read the model that ``path`` means.

    Args:
        path: A file, or a folder that holds one model.
        declared: The user's declarations of caches: ``past_0=kv,sequence=2``.
        choose: Returns the model to take of several in a folder; ``None`` to refuse it.

    Raises:
        ReadError: As `graphpass.io.load`.
        UsageError: GP201, the folder holds several models; GP218, a declaration lacks a kind or axis.
    """
    new = {declaration.name: declaration for declaration in map(parse_declaration, declared)}
    try:
        file = find_model(path)
    except UsageError:
        chosen = choose(path)
        if chosen is None:
            raise
        file = chosen
    with stage(f"reading {file}"):
        model = load(file)
        if new:
            known = {declaration.name: declaration for declaration in model.declarations}
            model.declare((known | new).values())
        return model
