"""Convert a Hugging Face tokenizer to the models that openvino.genai reads."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["has_tokenizer", "missing_packages", "stage_tokenizer"]

#: One of these holds a tokenizer's vocabulary.
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")

_RESULTS = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")

#: Packages that ``graphpass[genai]`` installs, by module.
_PACKAGES = {"openvino_tokenizers": "openvino-tokenizers", "transformers": "transformers"}


def has_tokenizer(folder: Path) -> bool:
    """Return whether ``folder`` holds a tokenizer of Hugging Face's, and no converted one."""
    found = {file.name for file in folder.iterdir()}
    return not found.isdisjoint(_VOCABULARIES) and found.isdisjoint(_RESULTS)


def missing_packages() -> list[str]:
    """Return the packages that converting needs and that are not installed."""
    return [name for module, name in _PACKAGES.items() if importlib.util.find_spec(module) is None]


def stage_tokenizer(source: Path, folder: Path) -> str:
    """Write ``openvino_tokenizer.xml`` and ``openvino_detokenizer.xml``, and return the converter's name.

    Their rt_info keeps the chat template and the tokens that start and end a text.

    Args:
        source: A folder for which `has_tokenizer` holds.
        folder: A folder of `graphpass.storage.staging.staging`.

    Raises:
        UnsupportedError: GP348, it cannot be converted.
    """
    import openvino
    import openvino_tokenizers
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        # Both packages raise errors of any kind, and only they know the tokenizers that they take.
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(source), local_files_only=True)
        models = openvino_tokenizers.convert_tokenizer(tokenizer, with_detokenizer=True)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UnsupportedError(
            "GP348", f"the tokenizer in {source} cannot be converted: {reason}", "--no-tokenizer leaves it as it is"
        ) from error
    for name, model in zip(_RESULTS, models, strict=True):
        openvino.save_model(model, folder / name, compress_to_fp16=False)
    return f"openvino-tokenizers {openvino_tokenizers.__version__}"
