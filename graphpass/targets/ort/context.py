"""Number of positions of a model, from the configuration beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphpass.errors import ReadError
from graphpass.model_files import configuration_folder
from graphpass.storage.documents import read_json

#: Keys of the number of positions in configurations of Transformers.
_KEYS = (
    *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_target_positions"),
    "model_max_length",
)

#: Key of the number of positions in section ``model`` of genai_config.json.
_KEY_OF_GENAI = "context_length"


def configuration(model_file: Path | None, name: str = "config.json") -> dict[str, Any]:
    """Return a model's configuration, with the entries of its section ``text_config``, if any.

    Args:
        model_file: The model's file, see `configuration_folder`; the result is empty for ``None``.
        name: Name of the configuration file; the result is empty if it is missing.

    Raises:
        ReadError: GP116, the file is not a JSON object.
    """
    file = configuration_folder(model_file) / name if model_file is not None else None
    if file is None or not file.is_file():
        return {}
    try:
        content = read_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ReadError("GP116", f"{file} is not JSON: {error}", "copy it again from the model's origin") from error
    if not isinstance(content, dict):
        raise ReadError("GP116", f"{file} is not a JSON object", "copy it again from the model's origin")
    inner = content.get("text_config")
    return {**content, **inner} if isinstance(inner, dict) else content


def context_length(model_file: Path | None) -> int | None:
    """Return the number of positions in config.json or, without it, in genai_config.json; ``None`` if unknown.

    Raises:
        ReadError: GP116, a configuration is not a JSON object.
    """
    numbers = _stated_numbers(model_file)
    return next((number for number in numbers if isinstance(number, int) and number > 0), None)


def _stated_numbers(model_file: Path | None) -> Iterator[object]:
    config = configuration(model_file)
    yield from (config.get(key) for key in _KEYS)
    model = configuration(model_file, "genai_config.json").get("model")
    if isinstance(model, dict):
        yield model.get(_KEY_OF_GENAI)
