"""Copy the configurations and tokenizers that lie beside a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from graphpass.errors import ReadError
from graphpass.storage.weight_file import lies_with

if TYPE_CHECKING:
    from graphpass.ir.types import Dialect

__all__ = ["companions", "copy_companions"]

_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_detokenizer.bin",
)

#: Files that only ONNX Runtime GenAI reads; they name the .onnx file, so they would be wrong beside an .xml.
_ONNX_COMPANIONS = ("genai_config.json", "audio_processor_config.json")


def companions(model_file: Path, dialect: Dialect = "openvino") -> tuple[Path, ...]:
    """Return the files beside a model that belong to it, always in the same order.

    Args:
        model_file: The model's graph file.
        dialect: Dialect of the result; files that only ONNX Runtime GenAI reads go with ``"onnx"``.

    Raises:
        ReadError: GP113, one is a link to a file elsewhere.
    """
    names = _COMPANIONS + (_ONNX_COMPANIONS if dialect == "onnx" else ())
    found = tuple(file for name in names if (file := model_file.parent / name).is_file())
    for file in found:
        if not lies_with(file, model_file):
            reason = f"{file} is a link that leads to {file.resolve()}, outside the folder of {model_file.name}"
            raise ReadError("GP113", reason, "copy the file itself beside the model")
    return found


def copy_companions(model_file: Path, folder: Path, dialect: Dialect = "openvino") -> tuple[Path, ...]:
    """Copy a model's companions into a staged folder, and return the copies.

    Args:
        model_file: The model's graph file.
        folder: A folder of `graphpass.storage.staging.staging`.
        dialect: Dialect of the result.

    Raises:
        ReadError: GP113, one is a link to a file elsewhere.
        OSError: The file system's words; ``staging`` turns it into a `WriteError`.
    """
    return tuple(Path(shutil.copyfile(file, folder / file.name)) for file in companions(model_file, dialect))
