"""Shrink models on which a pipeline fails, and bundle them for a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.jobs.watch import Watch

from .reading import ModelSource, StrPath, read_model

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.jobs.reduce.failing import Failing
    from graphpass.jobs.reduce.reduction import Reduction


def reduce(
    model: ModelSource,
    passes: str | Sequence[Pass[Any]],
    keeps: str,
    *,
    seconds: float = 60,
    watch: Watch | None = None,
) -> Reduction:
    """Shrink a model and a pipeline to the smallest case that still fails.

    Weights are replaced by noise. Passes, outputs, ranges of operators, layers and single operators are removed, and
    sizes are reduced, as long as the pipeline still fails.

    Args:
        model: A file, a folder with one model, or a loaded model.
        passes: The pipeline, or its text.
        keeps: The failure to keep: the id of an error, ``different`` for a result with different outputs, ``slow`` for
            a pipeline that takes at least half of its time on the whole model.
        seconds: Time limit of the search, in seconds.
        watch: Observes the search.

    Returns:
        The smallest case; ``str(reduction.case)`` is its text.

    Raises:
        ReadError: The model cannot be read.
        UsageError: GP275, the pipeline does not fail in this way; GP216, there is no error of this id.
        UnsupportedError: GP388, the text form does not support the model.

    Examples:
        >>> import graphpass
        >>> from graphpass.testing import tiny_model
        >>> reduction = graphpass.reduce(tiny_model("llama", "openvino"), "to-openvino", "GP301")
        >>> print(str(reduction.case).splitlines()[0])
        // RUN: to-openvino
    """
    from graphpass.jobs.reduce.reduction import reduce_model

    watch = watch or Watch()
    return reduce_model(read_model(model, (), watch), _parsed(passes), keeps, seconds=seconds, note=watch.note)


def bundle(
    model: ModelSource | Failing, output: StrPath, passes: str | Sequence[Pass[Any]] = (), keeps: str = "different"
) -> None:
    """Write a failing case, versions, command and log into one zip file, without weights.

    Args:
        model: A case, a file written by `graphpass reduce`, or, with ``passes``, a model.
        output: The file to write.
        passes: The pipeline, if ``model`` is a model.
        keeps: The failure; see `reduce`.

    Raises:
        ReadError: The model cannot be read.
        UsageError, UnsupportedError: As `reduce`.
        WriteError: GP501, the file system's error.

    Examples:
        >>> import graphpass
        >>> from graphpass.testing import tiny_model
        >>> graphpass.bundle(tiny_model("llama", "openvino"), "bug.zip", "to-openvino", "GP301")
        >>> graphpass.replay("bug.zip").splitlines()[0]
        'GP301: pass to-openvino: expected ONNX, got OpenVINO IR'
    """
    from graphpass.jobs.reduce.bundle import read_case, write_bundle
    from graphpass.jobs.reduce.failing import Failing
    from graphpass.jobs.reduce.oracle import Oracle
    from graphpass.jobs.reduce.reduction import reproduce

    if isinstance(model, Failing):
        case = model
    elif passes:
        case = reproduce(read_model(model, (), None), _parsed(passes), keeps, Oracle())
    else:
        case = read_case(Path(str(model)))
    write_bundle(case, Path(output))


def replay(file: StrPath) -> str | None:
    """Run the case of a bundle again.

    Args:
        file: A bundle, or a file written by `graphpass reduce`.

    Returns:
        The failure; ``None`` if it no longer occurs.

    Raises:
        ReadError: GP101, the file does not exist; GP120, the file is not a bundle.

    Examples:
        >>> import graphpass
        >>> graphpass.replay("missing.zip")
        Traceback (most recent call last):
        graphpass.errors.ReadError: GP101: ...
    """
    from graphpass.jobs.reduce.bundle import replay_bundle as run_again

    return run_again(Path(file))


def _parsed(passes: str | Sequence[Pass[Any]]) -> tuple[Pass[Any], ...]:
    from graphpass.engine.pipeline import parse

    return parse(passes) if isinstance(passes, str) else tuple(passes)
