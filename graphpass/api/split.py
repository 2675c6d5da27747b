"""Split a model into a prefill and a decode model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from graphpass.engine.split import Split
from graphpass.jobs.job import Job
from graphpass.jobs.split import SplitOutcome, split_model
from graphpass.jobs.watch import Watch

from .reading import StrPath

if TYPE_CHECKING:
    from graphpass.io import Weights
    from graphpass.ir.types import Dialect


def split(
    model: StrPath,
    output: StrPath,
    *,
    prompt: int,
    capacity: int,
    chunk: int | None = None,
    to: Dialect | None = None,
    verify: bool = True,
    caches: Iterable[str] = (),
    weights: Weights = "auto",
    watch: Watch | None = None,
) -> SplitOutcome:
    """Split a model into prefill and decode models of static shapes, with shared weights.

    `graphpass.runtime.open_pair` runs both as one session.

    Args:
        model: An ``.onnx`` or ``.xml`` file, or a folder with one of them.
        output: The folder to write to.
        prompt: Length of the longest prompt, in tokens.
        capacity: Positions of each cache, prompt included.
        chunk: Tokens that the prefill model processes in a step; by default ``prompt``.
        to: Dialect of the result; by default that of the input.
        verify: Whether to compare the result with the input.
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2,role=key``.
        weights: ``"copy"``, ``"share"``, or ``"auto"``; see `graphpass.io.stage_model`.
        watch: Observes the work.

    Returns:
        The files of both models, and the number of compared positions.

    Raises:
        GraphpassError: The input cannot be read or split, or the result computes different outputs; nothing is written.

    Examples:
        >>> import graphpass
        >>> pair = graphpass.split("build/fixtures/llama/onnx", "demo-output/pair", prompt=8, capacity=16, verify=False)
        >>> sorted(file.name for file in pair.files if file.name.endswith(".onnx"))
        ['decode.onnx', 'prefill.onnx']
    """
    job = Job(Path(model), Path(output), verify, tuple(caches), weights)
    return split_model(job, Split(prompt, prompt if chunk is None else chunk, capacity), to, watch or Watch())
