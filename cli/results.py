"""Write results whole or not at all, and report on them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from graphpass.engine.manager import PassRecord
from graphpass.engine.passes import Pass
from graphpass.errors import UsageError
from graphpass.io import Written, is_same_place
from graphpass.ir.model import Model
from graphpass.progress import stage

from .console import Console
from .job import Job


class Result:
    """Writes the result of a job, with its manifest.

    Attributes:
        folder: The folder of the result.
    """

    def __init__(
        self,
        console: Console,
        job: Job,
        inputs: Mapping[str, Model],
        passes: Mapping[str, Sequence[Pass[Any]]],
        options: Mapping[str, Any] | None = None,
        *,
        is_file: bool = False,
    ) -> None:
        """Describe the inputs of the result.

        Args:
            console: Prints activities and results.
            job: The options of the command.
            inputs: See `graphpass.artifacts.manifest.describe`.
            passes: See there.
            options: Further options that the result depends on.
            is_file: Whether the output is a model file, written without companions of the input.

        Raises:
            ReadError: As `graphpass.artifacts.manifest.describe`.
            UsageError: GP204, models are to be dumped into a folder that appears only at the end.
        """
        from graphpass.artifacts.manifest import describe

        self.folder = job.output.parent if is_file else job.output
        _refuse_dumps(job.dump_dir, self.folder)
        self._console, self._job, self._is_file = console, job, is_file
        self._files: list[str] = []
        self._graphs: list[str] = []
        with stage("reading what the input holds"):
            self._described = describe(inputs, passes, job.noted | dict(options or {}), weights=job.if_changed)

    def is_there(self) -> bool:
        """Return whether an earlier job made the same result, and print that."""
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
        """Return a folder to write into, before the work: its place may be write-protected."""
        from graphpass.storage.staging import staging

        return staging(self.folder)

    def write(
        self,
        staged: Path,
        models: Mapping[str, Model],
        records: Mapping[str, Iterable[PassRecord]],
        source: Path | None,
    ) -> None:
        """Write models, companions and manifest into the staged folder.

        Args:
            staged: The folder from `staged`.
            models: The models by the names of their files.
            records: Results of the passes; see `graphpass.artifacts.manifest.write_manifest`.
            source: A file of the input, beside which configurations and tokenizers lie.
        """
        from graphpass.artifacts.companions import copy_companions
        from graphpass.artifacts.manifest import manifest_of, write_manifest
        from graphpass.io import stage_model

        self._graphs = list(models)
        written = [stage_model(model, staged, name, weights=self._job.weights) for name, model in models.items()]
        if source is not None and not self._is_file:
            copy_companions(source, staged, next(iter(models.values())).dialect)
        place = staged / self._graphs[0] if self._is_file else staged
        write_manifest(manifest_of(place, is_file=self._is_file), self._described, records, self._graphs)
        self._files = files_told(staged, written)

    def tell(self, report: Iterable[str], notes: Iterable[str] = ()) -> None:
        """Print the report and the written files; if quiet, only the results.

        Args:
            report: Lines.
            notes: Lines about the companions.
        """
        tell(self._console, report, self.folder, [*self._files, *notes], [self.folder / name for name in self._graphs])


def tell(console: Console, report: Iterable[str], folder: Path, files: Iterable[str], results: Iterable[Path]) -> None:
    """Print a report and the written files; if quiet, only the results."""
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
        UsageError: GP203, it would replace one.
    """
    targets = [target, target.with_suffix(".bin")] if target.suffix.lower() == ".xml" else [target]
    sources = [*([model.path] if model.path is not None else []), *(file.path for file in model.weight_files)]
    for source in sources:
        if any(is_same_place(new, source) for new in targets):
            hint = "write into another folder"
            raise UsageError("GP203", f"writing {target} would overwrite {source}, which belongs to the input", hint)


def files_told(folder: Path, written: Iterable[Written]) -> list[str]:
    """Return the files in a staged folder with sizes and warnings."""
    from graphpass.reports.text import in_bytes

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
