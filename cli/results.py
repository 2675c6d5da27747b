"""What a command makes of its input: left alone where it is there, written whole or not at all, and told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from graphpass.errors import UsageError
from graphpass.io import is_same_place

from .sizes import in_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from graphpass.engine.manager import PassRecord
    from graphpass.engine.passes import Pass
    from graphpass.io import Written
    from graphpass.ir.model import Model

    from .console import Console
    from .job import Job

__all__ = ["Result", "files_told", "refuse_input", "tell"]


class Result:
    """The result of a job, with its manifest.

    Attributes:
        folder: Where it goes.
    """

    def __init__(
        self,
        console: Console,
        job: Job,
        inputs: Model | Mapping[str, Model],
        passes: Sequence[Pass[Any]] | Mapping[str, Sequence[Pass[Any]]],
        options: Mapping[str, Any] | None = None,
        *,
        is_file: bool = False,
    ) -> None:
        """Read what it is to be made from.

        Args:
            console: Where to say what is done.
            job: What was asked for.
            inputs: See `graphpass.artifacts.manifest.describe`.
            passes: See there.
            options: What else than the job it depends on.
            is_file: Whether the output is a model file, written without what lies beside the input.

        Raises:
            ReadError: As `graphpass.artifacts.manifest.describe`.
            UsageError: GP204, models are to be dumped into a folder that appears only at the end.
        """
        from graphpass.artifacts.manifest import describe

        self.folder = job.output.parent if is_file else job.output
        _refuse_dumps(job.observation.dump_dir, self.folder)
        self._console, self._job, self._is_file = console, job, is_file
        self._files: list[str] = []
        self._graphs: list[str] = []
        with console.activity("reading what the input holds"):
            self._described = describe(inputs, passes, job.noted | dict(options or {}), weights=job.if_changed)

    def is_there(self) -> bool:
        """Whether nothing is to be done, since an earlier job made the same; says so, or why not, where that counts."""
        from graphpass.artifacts.manifest import graphs_of, manifest_of, stale

        if not self._job.if_changed:
            return False
        manifest = manifest_of(self._job.output, is_file=self._is_file)
        if (reason := stale(manifest, self._described)) is not None:
            self._console.note(f"not up to date: {reason}")
            return False
        same = "is up to date: the same input, pipeline, options and versions; nothing was done"
        for graph in graphs_of(manifest):
            self._console.result(str(graph) if self._console.quiet else f"{graph} {same}")
        return True

    def staged(self) -> AbstractContextManager[Path]:
        """A folder to write into; see `graphpass.storage.staging.staging`.

        It comes before the work, so that a place which cannot be written to is known by then.
        """
        from graphpass.storage.staging import staging

        return staging(self.folder)

    def write(
        self,
        staged: Path,
        models: Mapping[str, Model],
        records: Iterable[PassRecord] | Mapping[str, Iterable[PassRecord]],
        source: Path | None,
    ) -> None:
        """Write models, and what belongs to them, into the staged folder.

        Args:
            staged: What `staged` gave.
            models: By the names of their files.
            records: What each pass did; see `graphpass.artifacts.manifest.write_manifest`.
            source: A file of the input, beside which configurations and tokenizers lie.
        """
        from graphpass.artifacts.companions import copy_companions
        from graphpass.artifacts.manifest import manifest_of, write_manifest
        from graphpass.io import stage_model

        self._graphs = list(models)
        with self._console.activity("writing"):
            written = [stage_model(model, staged, name, weights=self._job.weights) for name, model in models.items()]
            if source is not None and not self._is_file:
                copy_companions(source, staged, next(iter(models.values())).dialect)
            place = staged / self._graphs[0] if self._is_file else staged
            write_manifest(manifest_of(place, is_file=self._is_file), self._described, records, self._graphs)
        self._files = files_told(staged, written)

    def tell(self, report: Iterable[str], notes: Iterable[str] = ()) -> None:
        """Print what was done and written, or where the result is, if quiet.

        Args:
            report: Lines.
            notes: Lines about what lies beside the models.
        """
        tell(self._console, report, self.folder, [*self._files, *notes], [self.folder / name for name in self._graphs])


def tell(console: Console, report: Iterable[str], folder: Path, files: Iterable[str], results: Iterable[Path]) -> None:
    """Print what was done, and the files that were written into a folder; if quiet, only the results."""
    if console.quiet:
        for result in results:
            console.result(str(result))
    else:
        console.result("\n".join([*report, "", f"written to {folder}", *(f"  {file}" for file in files)]))


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


def files_told(folder: Path, written: Iterable[Written]) -> list[str]:
    """The files in a staged folder with their sizes; and what was done to files that models share with others."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    told = [f"{file.relative_to(folder)} ({in_bytes(file.stat().st_size)})" for file in files]
    return told + [_warning(shared, one.appended) for one in written for shared in one.shared]


def _refuse_dumps(dumps: Path | None, folder: Path) -> None:
    if dumps is None or os.path.lexists(folder):
        return
    place = dumps.resolve()
    if folder.resolve() in (place, *place.parents):
        reason = f"models cannot be dumped into {dumps}: {folder} appears when the work is done"
        raise UsageError("GP204", reason, f"make {folder} first, or dump into another folder")


def _warning(shared: Path, appended: int) -> str:
    grown = f"{appended} bytes were appended to it" if appended else "nothing was appended to it"
    told = f"WARNING: the weights are shared with {shared}: {grown}. Never edit either in place."
    return told if shared.suffix == ".bin" else f"{told} onnx.load refuses data files that are shared."
