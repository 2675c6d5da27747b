"""Convert a model for a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphpass.engine.pipeline import parse_target
from graphpass.engine.target import Target
from graphpass.jobs.convert import convert as run_job
from graphpass.jobs.job import Job, Proof
from graphpass.jobs.watch import Watch
from graphpass.progress import stage

from .reading import StrPath

if TYPE_CHECKING:
    from graphpass.io import Weights
    from graphpass.reports.outcome import ModelReport, Outcome


def convert(
    model: StrPath,
    output: StrPath,
    target: str | Target,
    *,
    verify: bool = True,
    verify_each: bool = False,
    proof: Proof | None = None,
    caches: Iterable[str] = (),
    weights: Weights = "auto",
    if_changed: bool = False,
    replace: bool = False,
    allow_unfused: bool = False,
    tokenizer: bool = True,
    dump_dir: StrPath | None = None,
    time_passes: bool = False,
    html: StrPath | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Convert a model for a target, and verify that the result computes the same.

    Args:
        model: An ``.onnx`` or ``.xml`` file, or a folder with a model, an encoder and its decoders, or a language model
            and its embedding models of text and images.
        output: The folder to write to. If the conversion fails, no file is written.
        target: The target with options: ``gpu{cache=reorder}``.
        verify: Whether to compare the result with the input, and to run a trial on the runtime.
        verify_each: Whether to compare the outputs with the input's after each pass, too.
        proof: Settings of the comparison.
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2,role=key``.
        weights: ``"copy"``, ``"share"``, or ``"auto"``; see `graphpass.io.stage_model`.
        if_changed: Whether to skip the conversion if ``output`` is the result of the same input, options and versions.
        replace: Whether to remove files of an earlier result that the new one does not have.
        allow_unfused: Whether to write a result that breaks the target's contract.
        tokenizer: Whether to convert the tokenizer beside the input.
        dump_dir: A folder for the model after each pass.
        time_passes: Whether to report the time of each pass and analysis.
        html: A file for a page about the model before and after; not written if the result is up to date.
        watch: Observes the work.

    Returns:
        The files, the passes that ran, the contract and the comparison.

    Raises:
        GraphpassError: The input cannot be read, a pass refuses it, or the result breaks the contract or computes
            different outputs; nothing is written.

    Examples:
        >>> import graphpass
        >>> outcome = graphpass.convert("build/fixtures/llama/onnx", "demo-output/doc", "ort", replace=True)
        >>> outcome.contract.holds, outcome.comparison.passed, [file.name for file in outcome.graphs]
        (True, True, ['model.onnx'])
    """
    job = Job(
        Path(model),
        Path(output),
        verify,
        tuple(caches),
        weights,
        if_changed=if_changed,
        replace=replace,
        verify_each=verify_each,
        dump_dir=None if dump_dir is None else Path(dump_dir),
        time_passes=time_passes,
        proof=proof or Proof(),
    )
    chosen = parse_target(target) if isinstance(target, str) else target
    page = None if html is None else Path(html)
    return convert_job(job, chosen, watch or Watch(), allow_unfused=allow_unfused, tokenizer=tokenizer, page=page)


def convert_job(
    job: Job, target: Target, watch: Watch, *, allow_unfused: bool, tokenizer: bool, page: Path | None
) -> Outcome:
    """Convert a model with the settings in ``job``; see `convert`.

    Args:
        job: The settings.
        target: The target.
        watch: Observes the work.
        allow_unfused: Whether to write a result that breaks the target's contract.
        tokenizer: Whether to convert the tokenizer beside the input.
        page: A file for a page about the model before and after.

    Returns:
        The files, the passes that ran, the contract and the comparison.

    Raises:
        GraphpassError: As `convert`.
    """
    from graphpass.storage.staging import check_writable, write_whole

    if page is not None:
        check_writable(page)
    drawn: list[str] = []

    def draw(reports: Sequence[ModelReport]) -> None:
        from graphpass.reports.conversion import models_as_parts

        if page is not None:
            with stage("drawing"):
                drawn.extend(models_as_parts(reports))

    def show(_: Path, outcome: Outcome) -> None:
        from graphpass.reports.conversion import as_page

        if page is not None:
            write_whole(page, as_page(outcome, drawn))

    outcome = run_job(job, target, watch, allow_unfused=allow_unfused, tokenizer=tokenizer, look=draw, gate=show)
    if page is not None and outcome.up_to_date:
        watch.note(f"{page} is not written: nothing was converted")
    return outcome
