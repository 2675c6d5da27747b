"""Every model among the fixtures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from support.models import fixtures
from support.thinned import thinned


def model_files() -> list[str]:
    """The model files, relative to the fixtures' folder; tokenizers do not count."""
    files = [*fixtures().rglob("*.onnx"), *fixtures().rglob("*.xml")]
    return sorted(str(file.relative_to(fixtures())) for file in files if "tokenizer" not in file.name)


def each_of(files: Iterable[str | PurePath]) -> list[Any]:
    """Thin out files below the fixtures: quick are each model, each way of exporting it, and each file name once."""
    return thinned(list(files), *(lambda file, place=place: PurePath(file).parts[place] for place in range(3)))
