"""Check a model against a target's contract."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpass.artifacts.encoder_decoder import find_encoder_decoder
from graphpass.engine.findings import Report
from graphpass.ir.model import Model
from graphpass.jobs.watch import Watch
from graphpass.progress import stage
from graphpass.reports.contract import as_json, as_text
from graphpass.targets import check_model

from .reading import Given, read


@dataclass(frozen=True, slots=True)
class Check:
    """Reports how a target's runtime treats a model.

    Attributes:
        model: The model, or the decoder beside an encoder.
        report: The findings, and the outcome of the trial.
    """

    model: Model
    report: Report

    def __str__(self) -> str:
        return self.text()

    @property
    def holds(self) -> bool:
        """Return whether the target's contract holds."""
        return self.report.holds

    def text(self, *, verbose: bool = False) -> str:
        """Return the text of ``graphpass check``.

        Args:
            verbose: Whether to list all findings.
        """
        return as_text(self.model, self.report, verbose=verbose)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``graphpass check --format json``."""
        return as_json(self.model, self.report)


def check(
    model: Given, target: str, *, confirm: bool = True, caches: Iterable[str] = (), watch: Watch | None = None
) -> Check:
    """Predict how a target's runtime treats a model, and try it.

    Args:
        model: A file, a folder that holds a model or an encoder and its decoder, or a model.
        target: The target with options: ``gpu{cache=reorder}``.
        confirm: Whether to try the runtime, if that is possible here.
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2,role=key``.
        watch: Chooses one of several models of a folder.

    Raises:
        ReadError: The model cannot be read.
        UsageError: GP201, a folder holds several models; GP215, there is no such target.
        UnsupportedError: The target has no rules, or cannot take the model.
    """
    parts = None if isinstance(model, Model) else find_encoder_decoder(Path(model))
    loaded = read(model if parts is None else parts.decoder, caches, watch)
    encoder = None if parts is None else read(parts.encoder, (), watch)
    with stage("checking"):
        return Check(loaded, check_model(loaded, target, confirm=confirm, encoder=encoder))
