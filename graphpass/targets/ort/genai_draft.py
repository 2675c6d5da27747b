"""Section ``draft`` of ``genai_config.json``: a smaller model that drafts tokens.

Source: ``src/models/speculative_decoding.cpp`` of onnxruntime-genai, and runs of version 0.18. Both models are decoders
of token ids whose caches can be rewound, with the same vocabulary and execution provider.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphpass.errors import ReadError, UnsupportedError
from graphpass.io import load
from graphpass.storage.kernel_copy import copy_file
from graphpass.targets.ort.genai_parts import section_of

#: Subfolder of a result with the files of its draft.
_FOLDER = "draft"

_HINT = "convert the draft with the target and options of its model, without option draft, and name the result's folder"


def draft_files(draft: Path) -> tuple[Path, Path]:
    """Return the configuration and the graph of a draft.

    Args:
        draft: A folder that target ort-genai wrote.

    Raises:
        ReadError: GP116, the configuration is not a JSON object.
        UnsupportedError: GP397, the folder has no configuration of a decoder.
    """
    config = draft / "genai_config.json"
    decoder = section_of(config, "decoder")
    graph = draft / str(decoder.get("filename"))
    if not config.is_file() or not graph.is_file():
        raise UnsupportedError("GP397", f"{draft} has no genai_config.json that names a decoder", _HINT)
    return config, graph


def draft_section(draft: Path, whole: dict[str, Any]) -> dict[str, Any]:
    """Return section ``draft`` of a model.

    Args:
        draft: The folder of the draft; see `draft_files`.
        whole: Section ``model`` of the model that verifies.

    Raises:
        ReadError: GP116, the configuration is not a JSON object.
        UnsupportedError: GP397, the models do not fit each other.
    """
    config, graph = draft_files(draft)
    other = section_of(config)
    reason = next((reason for reason in map(_why_not, (whole, other), ("model", "draft")) if reason is not None), None)
    if whole["vocab_size"] != other.get("vocab_size"):
        reason = f"the model has {whole['vocab_size']} token ids, and the draft {other.get('vocab_size')}"
    if whole["decoder"].get("session_options") != other["decoder"].get("session_options"):
        reason = "model and draft have different session_options, which select the execution provider"
    if reason is not None:
        raise UnsupportedError("GP397", f"onnxruntime-genai does not draft with {draft}: {reason}", _HINT)
    return {**other["decoder"], "filename": f"{_FOLDER}/{graph.name}"}


def copy_draft(draft: Path, folder: Path) -> None:
    """Copy graph and weights of a draft below a staged folder.

    Args:
        draft: The folder of the draft; see `draft_files`.
        folder: The staged folder.

    Raises:
        OSError: The file system reports an error; ``staging`` converts it to a `WriteError`.
        ReadError: As `graphpass.io.load`.
        UnsupportedError: GP397, the folder has no configuration of a decoder.
    """
    _, graph = draft_files(draft)
    target = folder / _FOLDER
    target.mkdir()
    weights = [file.path for file in load(graph).weight_files]
    inside = draft.resolve()
    if outside := [file for file in weights if file.parent != inside]:
        raise ReadError("GP113", f"{outside[0]} is outside {draft}", "copy the file itself beside the model")
    for file in (graph, *weights):
        copy_file(file, target / file.name)


def _why_not(model: dict[str, Any], name: str) -> str | None:
    """Return why a model cannot be verified or draft; ``None`` if it can."""
    decoder = model.get("decoder", {})
    states = [key for key in ("past_conv_names", "past_recurrent_names") if key in decoder.get("inputs", {})]
    if model.get("type") != "decoder":
        return f"the {name} is of type {model.get('type')}; expected decoder"
    if states:
        return f"the {name} has states that cannot be rewound ({states[0]})"
    return None
