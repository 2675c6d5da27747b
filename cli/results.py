"""Writing the result of a pipeline, all files or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graphpass.errors import UsageError
from graphpass.storage.write import is_same_place

from .sizes import in_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from graphpass.manager import PipelineResult
    from graphpass.model import Dialect, Model
    from graphpass.storage.write import Weights, Written

    from .console import Console

__all__ = [
    "FILE_NAMES",
    "files_told",
    "if_changed_option",
    "is_current",
    "refuse_input",
    "stage_result",
    "weights_option",
]

Function = TypeVar("Function", bound=Callable[..., Any])

#: What a model file is called in a folder.
FILE_NAMES: dict[Dialect, str] = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}


def refuse_input(model: Model, target: Path) -> None:
    """Check, before long work, that writing to ``target`` replaces no file of the pipeline's input.

    Args:
        model: The pipeline's input.
        target: The model file to be written; an ``.xml`` has a ``.bin`` beside it.

    Raises:
        UsageError: GP203, it would.
    """
    targets = [target, target.with_suffix(".bin")] if target.suffix.lower() == ".xml" else [target]
    sources = [*([model.path] if model.path is not None else []), *(file.path for file in model.weight_files)]
    for source in sources:
        if any(is_same_place(new, source) for new in targets):
            hint = "write into another folder"
            raise UsageError("GP203", f"writing {target} would overwrite {source}, which belongs to the input", hint)


def weights_option(command: Function) -> Function:
    """The option ``--weights``."""
    return click.option(
        "--weights",
        type=click.Choice(["auto", "share", "copy"]),
        default="auto",
        show_default=True,
        help="Copy the input's weight file, or share it: a hard link, to which what passes made is appended.",
    )(command)


def if_changed_option(command: Function) -> Function:
    """The option ``--if-changed``."""
    return click.option(
        "--if-changed",
        is_flag=True,
        help="Do nothing where the result of the same input, options and versions is there.",
    )(command)


def is_current(manifest: Path, described: Mapping[str, Any], console: Console) -> bool:
    """Whether the result beside a manifest is what the described work would give; says so, or why not."""
    from graphpass.storage.manifest import graphs_of, stale

    if (reason := stale(manifest, described)) is not None:
        console.note(f"not up to date: {reason}")
        return False
    same = "is up to date: the same input, pipeline, options and versions; nothing was done"
    for graph in graphs_of(manifest):
        console.result(str(graph) if console.quiet else f"{graph} {same}")
    return True


def stage_result(
    result: PipelineResult,
    source: Path | None,
    folder: Path,
    file_name: str,
    weights: Weights,
    described: Mapping[str, Any],
    *,
    companions: bool,
) -> list[str]:
    """Write models, and what belongs to them, into a staged folder.

    Args:
        result: What the pipeline made.
        source: The file that the pipeline's input was read from, beside which they lie.
        folder: A folder of `graphpass.storage.staging.staging`.
        file_name: Name of the model file.
        weights: See `graphpass.storage.write.stage_model`.
        described: What the manifest is to say of the work; see `graphpass.storage.manifest.describe`.
        companions: Whether configurations and tokenizers beside the source come along.

    Returns:
        The files written, relative to the folder, with their sizes; and what was done to shared files.
    """
    from graphpass.storage.companions import copy_companions
    from graphpass.storage.manifest import manifest_of, write_manifest
    from graphpass.storage.write import stage_model

    written = stage_model(result.model, folder, file_name, weights=weights)
    if companions and source is not None:
        copy_companions(source, folder, result.model.dialect)
    manifest = manifest_of(folder if companions else folder / file_name, is_file=not companions)
    write_manifest(manifest, described, result.records, [file_name])
    return files_told(folder, [written])


def files_told(folder: Path, written: Iterable[Written]) -> list[str]:
    """The files in a staged folder with their sizes; and what was done to files that models share with others."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    told = [f"{file.relative_to(folder)} ({in_bytes(file.stat().st_size)})" for file in files]
    return told + [_warning(shared, one.appended) for one in written for shared in one.shared]


def _warning(shared: Path, appended: int) -> str:
    grown = f"{appended} bytes were appended to it" if appended else "nothing was appended to it"
    told = f"WARNING: the weights are shared with {shared}: {grown}. Never edit either in place."
    return told if shared.suffix == ".bin" else f"{told} onnx.load refuses data files that are shared."
