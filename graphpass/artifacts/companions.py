"""Copy configurations and tokenizers of a model, and convert tokenizers for openvino.genai."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from graphpass.errors import ReadError, UnsupportedError
from graphpass.ir.types import Dialect
from graphpass.model_files import configuration_folder
from graphpass.storage.weight_file import lies_with

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

#: Files that only ONNX Runtime GenAI reads. They refer to the .onnx file, so they do not fit an .xml file.
_ONNX_COMPANIONS = ("genai_config.json", "audio_processor_config.json")

#: Files that contain a tokenizer's vocabulary; one is enough.
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")

_RESULTS = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")

#: Packages that ``graphpass[genai]`` installs, by module.
_PACKAGES = {"openvino_tokenizers": "openvino-tokenizers", "transformers": "transformers"}


def companions(model_file: Path, dialect: Dialect = "openvino") -> tuple[Path, ...]:
    """Return the configuration and tokenizer files of a model, in fixed order.

    Args:
        model_file: The model's graph file.
        dialect: Dialect of the result; ``"onnx"`` includes files that only ONNX Runtime GenAI reads.

    Raises:
        ReadError: GP113, a file is a link to a file outside its folder.
    """
    folder = configuration_folder(model_file)
    names = _COMPANIONS + (_ONNX_COMPANIONS if dialect == "onnx" else ())
    files = tuple(file for name in names if (file := folder / name).is_file())
    for file in files:
        if not lies_with(file, model_file) and not file.resolve().is_relative_to(folder.resolve()):
            reason = f"{file} is a link to {file.resolve()}, outside the folder of {model_file.name}"
            raise ReadError("GP113", reason, "copy the file itself beside the model")
    return files


def copy_companions(model_file: Path, folder: Path, dialect: Dialect = "openvino") -> tuple[Path, ...]:
    """Copy a model's companions into a staged folder.

    Args:
        model_file: The model's graph file.
        folder: A folder of `graphpass.storage.staging.staging`.
        dialect: Dialect of the result.

    Returns:
        The paths of the copies.

    Raises:
        ReadError: GP113, a file is a link to a file outside the folder.
        OSError: The file system reports an error; ``staging`` converts it to a `WriteError`.
    """
    return tuple(Path(shutil.copyfile(file, folder / file.name)) for file in companions(model_file, dialect))


def has_tokenizer(model_file: Path) -> bool:
    """Return whether a model has a tokenizer of Hugging Face and no converted one."""
    names = {file.name for file in configuration_folder(model_file).iterdir()}
    return not names.isdisjoint(_VOCABULARIES) and names.isdisjoint(_RESULTS)


def missing_packages() -> list[str]:
    """Return the packages that conversion of tokenizers requires and that are not installed."""
    return [name for module, name in _PACKAGES.items() if importlib.util.find_spec(module) is None]


def stage_tokenizer(model_file: Path, folder: Path) -> str:
    """Write ``openvino_tokenizer.xml`` and ``openvino_detokenizer.xml``.

    The rt_info of both includes the chat template, and the tokens that start and end a text.

    Args:
        model_file: A model for which `has_tokenizer` is true.
        folder: A folder of `graphpass.storage.staging.staging`.

    Returns:
        Name and version of the converter, for the report.

    Raises:
        UnsupportedError: GP348, the tokenizer cannot be converted.
    """
    import openvino
    import openvino_tokenizers
    import transformers

    transformers.logging.set_verbosity_error()
    source = configuration_folder(model_file)
    try:
        # Both packages raise exceptions of any type, and there is no list of the tokenizers that they support.
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(source), local_files_only=True)
        models = openvino_tokenizers.convert_tokenizer(tokenizer, with_detokenizer=True)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UnsupportedError(
            "GP348", f"the tokenizer in {source} cannot be converted: {reason}", "--no-tokenizer skips the conversion"
        ) from error
    for name, model in zip(_RESULTS, models, strict=True):
        openvino.save_model(model, folder / name, compress_to_fp16=False)
    return f"openvino-tokenizers {openvino_tokenizers.__version__}"
