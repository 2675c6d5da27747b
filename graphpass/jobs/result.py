"""Atomic writing of results: all files or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.engine.manager import PassRecord
from graphpass.engine.passes import Pass
from graphpass.errors import UsageError
from graphpass.io import Written, is_same_place
from graphpass.ir.model import Model
from graphpass.progress import stage

from . import unnoted
from .foresight import check_other_result, check_room, check_sharing, dialect_after, earlier_files
from .job import Job
from .watch import Watch

if TYPE_CHECKING:
    from graphpass.artifacts.parts import FolderParts
    from graphpass.verify import Comparison


class Result:
    """The result of a job, written with its manifest.

    Attributes:
        folder: The folder of the result.
        written: The weight files, copied or shared, after the result is written.
    """

    def __init__(
        self,
        watch: Watch,
        job: Job,
        inputs: Mapping[str, Model],
        passes: Mapping[str, Sequence[Pass[Any]]],
        options: Mapping[str, Any] | None = None,
        *,
        is_file: bool = False,
        parts: FolderParts | None = None,
    ) -> None:
        """Describe the inputs of the result.

        Args:
            watch: Observes the work.
            job: The settings.
            inputs: The models of the input, by part; see `graphpass.artifacts.manifest.describe`.
            passes: The pipelines, by part.
            options: Further options that the result depends on.
            is_file: Whether the output is a model file, written without configurations and tokenizers.
            parts: Files beside the model that are copied unchanged.

        Raises:
            ReadError: As `graphpass.artifacts.manifest.describe`.
            UsageError: GP204, the folder for dumps is inside the result's folder, which does not exist yet.
        """
        from graphpass.artifacts.manifest import describe

        self.folder = job.output.parent if is_file else job.output
        _refuse_dumps(job.dump_dir, self.folder)
        self.written: tuple[Written, ...] = ()
        self._copies = contextlib.ExitStack()
        self._watch, self._job, self._is_file, self._parts = watch, job, is_file, parts
        self._inputs = dict(inputs)
        self._models = tuple(inputs.values())
        self._pipelines = {name: (inputs[name], each) for name, each in passes.items()}
        copied = () if parts is None else (*parts.weights, *parts.others)
        with stage("hashing the input"):
            self._described = describe(
                inputs, passes, job.noted | dict(options or {}), weights=job.if_changed, copied=copied
            )

    def stale(self) -> str | None:
        """Return the reason why the result is stale; ``None`` if it is up to date."""
        from graphpass.artifacts.manifest import manifest_of, stale, without_weights

        manifest = manifest_of(self._job.output, is_file=self._is_file)
        described = self._described
        if unnoted.is_of(manifest, self._models):
            described = without_weights(described)
        return stale(manifest, described)

    def earlier(self) -> tuple[Path, ...]:
        """Return the model files of an up-to-date earlier result; empty without ``if_changed``."""
        from graphpass.artifacts.manifest import graphs_of, manifest_of

        if not self._job.if_changed:
            return ()
        if (reason := self.stale()) is not None:
            self._watch.note(f"not up to date: {reason}")
            return ()
        return graphs_of(manifest_of(self._job.output, is_file=self._is_file))

    @contextlib.contextmanager
    def staged(self, graphs: Sequence[str]) -> Iterator[Path]:
        """Open a folder for the result, after checks that the result can be written.

        At the end of the context, its files replace those of an earlier result; other files of that result are removed.

        Args:
            graphs: Names of the model files to write.

        Yields:
            The folder to write it to.

        Raises:
            UsageError: GP230, weights cannot be shared; GP238, the folder has another result.
            WriteError: GP501, the folder is write-protected or lacks space; and as `graphpass.storage.staging.staging`.
        """
        from graphpass.artifacts.manifest import manifest_of
        from graphpass.storage.staging import staging

        path = self.folder / graphs[0] if self._is_file else self.folder
        manifest = manifest_of(path, is_file=self._is_file)
        inputs = [model for model, _ in self._pipelines.values()]
        check_other_result(manifest, graphs, inputs, replace=self._job.replace)
        with staging(self.folder, earlier_files(manifest)[0]) as folder:
            copied = {file.path: file for file in self._parts.weights.values()} if self._parts is not None else {}
            for model, passes in self._pipelines.values():
                if self._job.weights == "share":
                    check_sharing(model, dialect_after(model, passes), folder)
                copied |= {file.path: file for file in model.weight_files}
            if self._job.weights != "share":
                check_room(copied.values(), folder, self.folder)
            with self._hashing_inputs(), self._copies:
                yield folder
        if not self._job.if_changed:
            unnoted.remember_weights(manifest, self._models)

    def _hashing_inputs(self) -> AbstractContextManager[None]:
        """Return a context that computes digests for the certificate beside passes and proof."""
        from graphpass.dialects.weights import weights_of
        from graphpass.storage.digests import computing_ahead
        from graphpass.storage.weight_file import FileRange

        models = self._models if self._job.verify else ()
        weights = [weight.content for model in models for weight in weights_of(model, above=0)]
        files = [FileRange(file, 0, file.size) for model in models for file in model.weight_files]
        return computing_ahead([*(content for content in weights if isinstance(content, FileRange)), *files])

    def copy_ahead(self, staged: Path, models: Iterable[Model]) -> None:
        """Start to copy the weight files of `write`; without `write` the copies are discarded.

        Args:
            staged: The folder from `staged`.
            models: The models to write.
        """
        from graphpass.io import files_to_copy
        from graphpass.storage.copying_ahead import copying_ahead

        if self._job.weights in {"auto", "copy"}:
            files = [file for model in models for file in files_to_copy(model)]
            self._copies.enter_context(copying_ahead(files, staged))

    def write(
        self,
        staged: Path,
        models: Mapping[str, Model],
        records: Mapping[str, Iterable[PassRecord]],
        source: Path | None,
        texts: Mapping[str, str] | None = None,
        comparison: Comparison | None = None,
        written: Written | None = None,
    ) -> None:
        """Write models, configurations, tokenizers and manifest to the staged folder.

        Args:
            staged: The folder from `staged`.
            models: The models by file name.
            records: Results of the passes; see `graphpass.artifacts.manifest.write_manifest`.
            source: A file of the input, in the folder of its configurations and tokenizers.
            texts: Contents of further files by name; they replace files copied from the input.
            comparison: The comparison with the input, for the certificate.
            written: The weight files, if the models are in the folder already.
        """
        from graphpass.artifacts.certificate import certify
        from graphpass.artifacts.companions import copy_companions
        from graphpass.artifacts.manifest import manifest_of, write_manifest
        from graphpass.artifacts.parts import stage_parts
        from graphpass.io import stage_model

        certificate = None
        if comparison is not None:
            # Digests are of the files that were read; writing may append to shared weight files.
            with stage("hashing the input"):
                certificate = certify(comparison, self._inputs)
        for name in models:
            (staged / name).parent.mkdir(exist_ok=True)
        self.written = (
            (written,)
            if written is not None
            else tuple(
                stage_model(model, (staged / name).parent, Path(name).name, weights=self._job.weights)
                for name, model in models.items()
            )
        )
        copies = {
            str(Path(name).parent / file): original
            for name, each in zip(models, self.written, strict=False)
            for file, original in each.copies
        }
        if self._parts is not None:
            with stage("copying the other models"):
                shared = stage_parts(self._parts, staged, share=self._job.weights == "share")
            self.written = (*self.written, Written(shared))
            copies |= {} if shared else self._parts.weights
        if source is not None and not self._is_file:
            copy_companions(source, staged, next(iter(models.values())).dialect)
        for name, text in (texts or {}).items():
            (staged / name).write_text(text, encoding="utf-8")
        path = staged / next(iter(models)) if self._is_file else staged
        manifest = manifest_of(path, is_file=self._is_file)
        write_manifest(manifest, self._described, records, list(models), certificate, copies)


def refuse_input(model: Model, target: Path) -> None:
    """Check, before long work, that ``target`` does not overwrite a file of the input.

    Args:
        model: The input of the pipeline.
        target: The model file to write; an ``.xml`` file has a ``.bin`` file beside it.

    Raises:
        UsageError: GP203, a file of the input would be overwritten.
    """
    targets = [target, target.with_suffix(".bin")] if target.suffix.lower() == ".xml" else [target]
    sources = [*([model.path] if model.path is not None else []), *(file.path for file in model.weight_files)]
    for source in sources:
        if any(is_same_place(new, source) for new in targets):
            hint = "write into another folder"
            raise UsageError("GP203", f"writing {target} would overwrite {source}, which belongs to the input", hint)


def _refuse_dumps(dumps: Path | None, folder: Path) -> None:
    if dumps is None or os.path.lexists(folder):
        return
    path = dumps.resolve()
    if folder.resolve() in (path, *path.parents):
        reason = f"cannot dump models to {dumps}: {folder} is created at the end of the command"
        raise UsageError("GP204", reason, f"create {folder} first, or dump to another folder")
