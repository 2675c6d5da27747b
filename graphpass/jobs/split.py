"""Split a model into prefill and decode models, verify them, and write them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.engine.split import PHASES, Split
from graphpass.progress import STAGES, expect, stages
from graphpass.reports.outcome import (
    ModelReport,
    WrittenFile,
    files_in,
    files_text,
    pass_records_json,
    passes_text,
    shared_json,
)
from graphpass.reports.report import Report

from .job import Job, prove, run_passes
from .reading import read_model
from .result import refuse_input
from .watch import Watch

if TYPE_CHECKING:
    from graphpass.io import Written
    from graphpass.ir.types import Dialect


@dataclass(frozen=True, slots=True)
class SplitOutcome(Report):
    """Report on a split model.

    Attributes:
        input: The file of the input.
        output: The folder of both models.
        split: Sizes of both models.
        suffix: Suffix of the model files: ``.onnx`` or ``.xml``.
        preparation: The pipeline before the split; ``None`` without one.
        compared: Number of positions compared with the input; ``None`` without verification.
        files: All files of the result.
        written: The weight file, copied or shared.

    Examples:
        >>> import graphpass
        >>> model = "build/fixtures/llama/onnx"
        >>> pair = graphpass.split(model, "demo-output/halves", prompt=8, capacity=16, verify=False)
        >>> pair.compared is None
        True
    """

    input: Path
    output: Path
    split: Split
    suffix: str
    preparation: ModelReport | None
    compared: int | None
    files: tuple[WrittenFile, ...]
    written: Written

    def text(self, *, verbose: bool = False) -> str:
        """Return the text of ``graphpass split``."""
        split = self.split
        sizes = f"prompts of {split.prompt} in chunks of {split.chunk}, {split.capacity} positions"
        report = [] if self.preparation is None else passes_text(self.preparation, verbose=verbose)
        verdict = "not verified (--no-verify)"
        if self.compared is not None:
            verdict = f"same: {self.compared} positions compared, after prompts of 1 to {split.prompt} tokens"
        notes = ["prefill.bin and decode.bin are hard links to one file"] if self.suffix == ".xml" else []
        files = files_text(self.output, self.files, [self.written], notes, verbose=verbose)
        head = f"{self.input} -> {self.output}: {sizes}"
        return "\n".join([head, "", *report, "", *files, "", f"verified  {verdict}"])

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``split --format json``."""
        report = self.preparation
        return {
            "input": str(self.input),
            "output": str(self.output),
            "prompt": self.split.prompt,
            "chunk": self.split.chunk,
            "capacity": self.split.capacity,
            "graphs": [str(self.output / f"{name}{self.suffix}") for name in PHASES],
            "passes": [] if report is None else pass_records_json(report),
            "positions_compared": self.compared,
            "files": [asdict(file) for file in self.files],
            "shared_weights": shared_json([self.written]),
        }


def split_model(job: Job, split: Split, dialect: Dialect | None, watch: Watch) -> SplitOutcome:
    """Split a model, and write both results.

    Args:
        job: The settings.
        split: Sizes of the two models.
        dialect: Dialect of the result; ``None`` for that of the input.
        watch: Observes the work.

    Returns:
        The outcome, with the sizes of both models.

    Raises:
        GraphpassError: The input cannot be read or split, or the result computes different outputs; nothing is written.
    """
    with stages("splitting", 1):  # reading
        return _split(job, split, dialect, watch)


def _split(job: Job, split: Split, dialect: Dialect | None, watch: Watch) -> SplitOutcome:
    from graphpass.artifacts.companions import copy_companions
    from graphpass.artifacts.split import preparation, stage_split
    from graphpass.errors import UsageError
    from graphpass.storage.staging import staging
    from graphpass.verify.pair import compare_pair

    loaded = read_model(job.model, job.declared, watch.choose)
    assert loaded.path is not None
    target = dialect or loaded.dialect
    if target == "onnx" and loaded.dialect == "openvino":
        raise UsageError("GP268", "OpenVINO IR cannot be converted to ONNX", "omit --to onnx")
    suffix = ".onnx" if target == "onnx" else ".xml"
    for name in PHASES:
        refuse_input(loaded, job.output / f"{name}{suffix}")
    # Create the staging folder first, so that a write-protected output fails before long work.
    with staging(job.output) as folder:
        passes = preparation(loaded, target, split)
        prepared, report = loaded, None
        # The preparation; weights; a pipeline and a file for each part; proof.
        expect((len(passes) > 0) + 1 + 2 * len(PHASES) + job.verify, STAGES)
        if passes:
            result, timings = run_passes(passes, loaded, job, watch)
            prepared = result.model
            report = ModelReport("", "", loaded, prepared, passes, result.records, timings)
        models, written = stage_split(prepared, split, folder, job.weights)
        compared = None
        if job.verify:
            comparison = prove(lambda: compare_pair(loaded, models["prefill"], models["decode"], split), "")
            compared = sum(run.steps + 1 for run in comparison.sequences)
        # Configurations of ONNX Runtime GenAI name one model, and are not copied.
        copy_companions(loaded.path, folder, "openvino")
        files = files_in(folder)
    return SplitOutcome(loaded.path, job.output, split, suffix, report, compared, files, written)
