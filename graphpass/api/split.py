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
    """Make a prefill and a decode model of static shapes, over one file of weights.

    `graphpass.runtime.open_pair` runs the two as one session.

    Args:
        model: An ``.onnx`` or ``.xml`` file, or a folder that holds one of them.
        output: The folder to write to.
        prompt: Tokens of the longest prompt.
        capacity: Positions that fit, the prompt included.
        chunk: Tokens that the prefill model takes at a time; the longest prompt by default.
        to: Dialect of the result; the input's by default.
        verify: Whether to compare the result with the input.
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2,role=key``.
        weights: ``"copy"``, ``"share"``, or ``"auto"``; see `graphpass.io.stage_model`.
        watch: Observes the work.

    Returns:
        The files of both models, and the number of positions that were compared.

    Raises:
        GraphpassError: The input cannot be read or split, or the result does not compute the same; nothing is written
            then.

    Examples:
        >>> import graphpass
        >>> pair = graphpass.split("build/fixtures/llama/onnx", "demo-output/pair", prompt=8, capacity=16, verify=False)
        >>> sorted(file.name for file in pair.files if file.name.endswith(".onnx"))
        ['decode.onnx', 'prefill.onnx']
    """
    job = Job(Path(model), Path(output), verify, tuple(caches), weights)
    return split_model(job, Split(prompt, prompt if chunk is None else chunk, capacity), to, watch or Watch())
