"""Converting a Hugging Face tokenizer to the models that openvino.genai reads."""

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

#: What ``graphpass[genai]`` installs.
_PACKAGES = {"openvino_tokenizers": "openvino-tokenizers", "transformers": "transformers"}


def has_tokenizer(folder: Path) -> bool:
    """Whether ``folder`` holds a tokenizer of Hugging Face's, and not what would be made of it."""
    found = {file.name for file in folder.iterdir()}
    return not found.isdisjoint(_VOCABULARIES) and found.isdisjoint(_RESULTS)


def missing_packages() -> list[str]:
    """The packages that converting needs and that are not installed."""
    return [name for module, name in _PACKAGES.items() if importlib.util.find_spec(module) is None]


def stage_tokenizer(source: Path, folder: Path) -> str:
    """Write ``openvino_tokenizer.xml`` and ``openvino_detokenizer.xml``.

    The chat template, and which tokens start and end a text, are kept in their rt_info.

    Args:
        source: A folder for which `has_tokenizer` holds.
        folder: Where to write; see `graphpass.storage.staging.staging`.

    Returns:
        What converted it.

    Raises:
        UnsupportedError: GP348, it cannot be converted.
    """
    import openvino
    import openvino_tokenizers
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        # Both packages raise what they like, and which tokenizers they take is theirs to say.
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(source), local_files_only=True)
        models = openvino_tokenizers.convert_tokenizer(tokenizer, with_detokenizer=True)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UnsupportedError(
            "GP348",
            f"the tokenizer in {source} cannot be converted: {reason}",
            "--no-tokenizer leaves it as it is",
        ) from error
    for name, model in zip(_RESULTS, models, strict=True):
        openvino.save_model(model, folder / name, compress_to_fp16=False)
    return f"openvino-tokenizers {openvino_tokenizers.__version__}"
