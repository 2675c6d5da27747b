"""Check a model against a target's contract."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from graphpass.artifacts.split import find_pair
from graphpass.ir.model import Model
from graphpass.jobs.watch import Watch
from graphpass.progress import stages
from graphpass.reports.contract import Check
from graphpass.runtime.encoder_decoder import find_encoder_decoder
from graphpass.targets import check_model

from .reading import ModelSource, read_model


def check(
    model: ModelSource, target: str, *, confirm: bool = True, caches: Iterable[str] = (), watch: Watch | None = None
) -> Check:
    """Predict how a target's runtime executes a model, and confirm the prediction by a trial.

    Args:
        model: A file, a loaded model, or a folder with one model, an encoder and its decoder, or a prefill and a decode
            model.
        target: The target with options: ``gpu{cache=reorder}``.
        confirm: Whether to run a trial, if this machine has the runtime.
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2,role=key``.
        watch: Selects the model if a folder has several.

    Returns:
        The findings for each attention block and cache, and the outcome of the trial.

    Raises:
        ReadError: The model cannot be read.
        UsageError: GP201, the folder has several models; GP215, the target does not exist.
        UnsupportedError: The target has no rules, or does not support the model.

    Examples:
        >>> import graphpass
        >>> graphpass.check("build/fixtures/llama/ov-stateful", "cpu", confirm=False).holds
        True
    """
    parts = None if isinstance(model, Model) else _two_models(Path(model))
    with stages("checking", 3 + (parts is not None)):  # reading each model, predicting, trying
        loaded = read_model(model if parts is None else parts[1], caches, watch)
        encoder = None if parts is None else read_model(parts[0], (), watch)
        return Check(loaded, check_model(loaded, target, confirm=confirm, encoder=encoder))


def _two_models(path: Path) -> tuple[Path, Path] | None:
    """Return the pair of models in a folder: encoder and decoder, or prefill and decode."""
    parts = find_encoder_decoder(path)
    return find_pair(path) if parts is None else (parts.encoder, parts.decoder)
