"""Run a pipeline on a model, and write the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphpass.progress import STAGES, expect, stages

from .foresight import dialect_after
from .job import Job, prove, run_passes
from .reading import read_model
from .result import Result, refuse_input
from .watch import Watch

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.ir.model import Model
    from graphpass.ir.types import Dialect
    from graphpass.reports.outcome import Outcome

    from .convert import Gate, Look

_FILE_NAMES: dict[Dialect, str] = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}


def run(
    job: Job, passes: Sequence[Pass[Model]], watch: Watch, *, look: Look | None = None, gate: Gate | None = None
) -> Outcome:
    """Run a pipeline on a model and write the result.

    Args:
        job: The settings; the output is a model file or a folder.
        passes: The pipeline.
        watch: Observes the work.
        look: Called before the models are written.
        gate: Called before the result is published.

    Returns:
        The outcome; `Outcome.up_to_date` if an earlier result is kept.

    Raises:
        GraphpassError: The input cannot be read, a pass refuses it, or the result computes different outputs; nothing
            is written.
    """
    with stages("converting", 2):  # reading, and describing the input
        return _run(job, passes, watch, look, gate)


def _run(job: Job, passes: Sequence[Pass[Model]], watch: Watch, look: Look | None, gate: Gate | None) -> Outcome:
    from graphpass.io import check_destination, check_suffix
    from graphpass.reports.outcome import ModelReport, Outcome, files_in, sources_of

    loaded, output = read_model(job.model, job.declared, watch.choose), job.output
    assert loaded.path is not None
    is_file = is_model_file(output)
    dialect = dialect_after(loaded, passes)
    target = output if is_file else output / _FILE_NAMES[dialect]
    check_suffix(dialect, target)
    refuse_input(loaded, target)
    made = Result(watch, job, {"": loaded}, {"": passes}, is_file=is_file)
    if graphs := made.earlier():
        return Outcome(loaded.path, made.folder, graphs, sources_of([loaded]), up_to_date=True)
    # The pipeline and the file; proof and certificate.
    expect(2 + 2 * job.verify, STAGES)
    with made.staged([target.name]) as folder:
        result, timings = run_passes(passes, loaded, job, watch)
        check_destination(result.model, target)
        comparison = None
        if job.verify:
            from graphpass.verify import compare_within

            made.copy_ahead(folder, [result.model])
            hint = "--verify-each names the pass, "
            settings = job.proof.settings | {"examine": True}
            comparison = prove(lambda: compare_within(loaded, result.model, **settings), hint, job.proof.require)
        report = ModelReport("", target.name, loaded, result.model, tuple(passes), result.records, timings)
        if look is not None:
            look([report])
        made.write(folder, {target.name: result.model}, {"": result.records}, loaded.path, comparison=comparison)
        outcome = Outcome(
            loaded.path,
            made.folder,
            (target,),
            sources_of([loaded]),
            models=(report,),
            comparison=comparison,
            files=files_in(folder),
            written=made.written,
        )
        if gate is not None:
            gate(folder, outcome)
    return outcome


def stale(job: Job, passes: Sequence[Pass[Model]]) -> str | None:
    """Return the reason why the result is stale; ``None`` if it is up to date.

    Args:
        job: The settings, with the input and the output.
        passes: The pipeline.

    Raises:
        GraphpassError: The input cannot be read.
    """
    loaded = read_model(job.model, job.declared)
    return Result(Watch(), job, {"": loaded}, {"": passes}, is_file=is_model_file(job.output)).stale()


def is_model_file(output: Path) -> bool:
    """Return whether an output is a model file, not a folder."""
    return output.suffix.lower() in {".onnx", ".xml"} and not output.is_dir()
