"""Every model among the fixtures."""

from __future__ import annotations

from support.models import fixtures


def model_files() -> list[str]:
    """The model files, relative to the fixtures' folder; tokenizers do not count."""
    files = [*fixtures().rglob("*.onnx"), *fixtures().rglob("*.xml")]
    return sorted(str(file.relative_to(fixtures())) for file in files if "tokenizer" not in file.name)
