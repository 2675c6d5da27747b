"""Models of embeddings and images beside a decoder, as sections of ``genai_config.json``.

Source: ``src/models/model_type.h``, ``multi_modal.cpp`` and ``decoder_only_pipeline.cpp`` of onnxruntime-genai, and
runs of version 0.18. With a model of images, the embedding model reads their features. Without one, embedding and
decoder are stages of type ``decoder-pipeline``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpass.analysis.symbolic.hidden_size import hidden_size
from graphpass.errors import PreconditionError
from graphpass.ir.inputs import EMBEDDINGS, token_input
from graphpass.ir.model import Model
from graphpass.ir.types import Port, shape_text
from graphpass.ir.values import REALS
from graphpass.model_files import models_beside, parts_of
from graphpass.targets.ort.context import configuration

#: Source file that runs the models of a folder.
PARTS_SOURCE = "onnxruntime-genai/src/models/multi_modal.cpp"

#: Pass that adds the input for features of images.
READER = "read-image-features{token=ID}"

#: Types whose positions are ``[3, batch, length]``: time, height and width.
_ROTATED = ("qwen2_5_vl", "fara", "qwen3_vl", "qwen3_5", "qwen3_5_moe")

#: Types whose positions are ``[batch, length]``. A type selects only the image processor; see `_type`.
_COUNTED = ("gemma3", "mistral3", "phi3v", "videochat_flash_qwen", "gemma4", "phi4mm")

#: Entries for the inputs of a vision model, by the name that onnxruntime-genai's processors use.
_VISION_INPUTS = {
    "pixel_values": "pixel_values",
    "pixel_position_ids": "pixel_position_ids",
    "image_sizes": "image_sizes",
    "image_grid_thw": "image_grid_thw",
    "image_attention_mask": "attention_mask",
}

#: Entries with token ids, and their keys in config.json.
_TOKENS = {
    "image_token_id": ("image_token_id", "image_token_index"),
    "video_token_id": ("video_token_id", "video_token_index"),
    "vision_start_token_id": ("vision_start_token_id",),
}

#: Entries without which positions of images are wrong.
_PLACES = ("image_token_id", "vision_start_token_id")

_VISION_SIZES = ("spatial_merge_size", "patch_size", "tokens_per_second")


@dataclass(frozen=True, slots=True)
class GenaiParts:
    """Models that onnxruntime-genai runs before a decoder.

    Attributes:
        decoder: File of the decoder, relative to the folder.
        embedding: The embedding model.
        vision: The model of images, if any.
        files: Files of embedding and vision model, relative to the folder.
        models: All models beside the decoder, by file.
    """

    decoder: str
    embedding: Model
    vision: Model | None
    files: tuple[str, ...]
    models: dict[str, Model]

    @property
    def features(self) -> Port | None:
        """Return the input of the embedding model for features of images."""
        return next((port for port in self.embedding.inputs if port.element_type in REALS), None)

    @property
    def ids(self) -> Port:
        """Return the input of the embedding model for token ids."""
        return next(port for port in self.embedding.inputs if port.element_type not in REALS)


def find_parts(model: Model) -> GenaiParts | None:
    """Return the models beside a decoder of embeddings; ``None`` unless exactly one computes its embeddings.

    Args:
        model: The decoder, read from a file.

    Raises:
        ReadError: As `graphpass.io.load`.
    """
    from graphpass.runtime.embedding_model import is_embedder

    hidden = hidden_size(model)
    if model.path is None or hidden is None:
        return None
    folder, _ = parts_of(model.path)
    others = {file.relative_to(folder).as_posix(): other for file, other in model.analysis(models_beside).items()}
    embedders = {name: other for name, other in others.items() if is_embedder(other, hidden)}
    if len(embedders) != 1:
        return None
    rest = {name: other for name, other in others.items() if name not in embedders}
    visions = {name: other for name, other in rest.items() if token_input(other.graph) is None}
    stated = section_of(model.path, "vision").get("filename")
    named = {name: other for name, other in visions.items() if name == stated}
    vision = next(iter((named or visions).values())) if len(named or visions) == 1 else None
    names = (*embedders, *(name for name, other in visions.items() if other is vision))
    decoder = model.path.relative_to(folder).as_posix()
    return GenaiParts(decoder, next(iter(embedders.values())), vision, names, others)


def why_no_parts(model: Model) -> str | None:
    """Return why onnxruntime-genai cannot feed the embeddings of ``model``; ``None`` if it can."""
    parts = model.analysis(find_parts)
    embeddings = model.graph.parameters[EMBEDDINGS]
    if parts is None:
        return (
            f"its input {EMBEDDINGS} is fed only in folders that also have one model of the embedding: "
            "pass the folder of both, export the model with its embedding, or use target ort"
        )
    output = parts.embedding.outputs[0]
    if output.element_type != embeddings.element_type:
        types = f"{output.element_type}, and {EMBEDDINGS} is {embeddings.element_type}"
        return f"its embedding model {parts.files[0]} returns {types}; onnxruntime-genai requires equal types"
    if parts.vision is None:
        return _why_no_stages(model, parts)
    features, returned = parts.features, _features(parts.vision)
    if features is None:
        return (
            f"its embedding model {parts.files[0]} has no input for the features that {parts.files[1]} returns: run "
            f"pass {READER} on it"
        )
    if returned is None or (features.shape is not None and len(returned.shape or ()) != len(features.shape)):
        shapes = f"{shape_text(features.shape)}, and {parts.files[1]} returns"
        shapes += f" {shape_text(returned.shape)}" if returned is not None else " no features"
        return f"its embedding model {parts.files[0]} reads features {shapes}; onnxruntime-genai does not reshape them"
    return None


def _why_no_stages(model: Model, parts: GenaiParts) -> str | None:
    if len(parts.models) > 1:
        names = ", ".join(sorted(parts.models))
        return f"onnxruntime-genai needs one model of images beside the embedding model, and its folder has {names}"
    if parts.features is not None:
        return f"input {parts.features.name} of its embedding model {parts.files[0]} is not fed: no model returns it"
    if _rotates(model):
        return "its position_ids have three rows, which onnxruntime-genai feeds only beside a model of images"
    return None


def parts_sections(model: Model, parts: GenaiParts, source: Path | None) -> dict[str, Any]:
    """Return the entries of section ``model`` besides ``decoder``, with its type.

    Args:
        model: The decoder.
        parts: The models beside it.
        source: A file of the input, in the folder of its configurations.

    Raises:
        ReadError: GP116, a configuration of the input is not a JSON object.
    """
    if parts.vision is None:
        return {"type": "decoder-pipeline"}
    vision = parts.vision
    features, returned = parts.features, _features(vision)
    assert features is not None
    assert returned is not None
    stated, sizes = section_of(source, "vision"), configuration(source).get("vision_config", {})
    names = {key: name for name, key in _VISION_INPUTS.items() if any(port.name == name for port in vision.inputs)}
    return {
        "type": _type(model, source),
        **_tokens(source),
        "embedding": {
            "filename": parts.files[0],
            "inputs": {"input_ids": parts.ids.name, "image_features": features.name},
            "outputs": {"inputs_embeds": parts.embedding.outputs[0].name},
        },
        "vision": {
            **{key: sizes[key] for key in _VISION_SIZES if key in sizes},
            **{key: value for key, value in stated.items() if key != "session_options"},
            "filename": parts.files[1],
            "inputs": {**names, **stated.get("inputs", {})},
            "outputs": {"image_features": returned.name},
        },
    }


def stages(model: Model, parts: GenaiParts) -> dict[str, Any]:
    """Return entries of section ``decoder``: its inputs, and without a vision model the stages.

    Args:
        model: The decoder.
        parts: The models beside it.
    """
    # The embedding model is fed ids under the name in section decoder (``input_ids.cpp``).
    common = {"hidden_size": hidden_size(model), "inputs": {"input_ids": parts.ids.name}}
    if parts.vision is not None:
        return {"filename": parts.decoder, **common}
    output = parts.embedding.outputs[0].name
    embedding: dict[str, Any] = {"filename": parts.files[0], "inputs": [parts.ids.name], "outputs": [output]}
    if output != EMBEDDINGS:
        embedding["output_names_forwarder"] = {output: EMBEDDINGS}
    names = [port.name for port in model.inputs], [port.name for port in model.outputs]
    decoder = {"filename": parts.decoder, "inputs": names[0], "outputs": names[1]}
    return {**common, "pipeline": [{"embedding": embedding, "decoder": decoder}]}


def require_tokens(model: Model, source: Path | None) -> None:
    """Check that the token ids are known from which onnxruntime-genai computes the positions of images.

    A decoder without an embedding model is refused later, for that reason.

    Args:
        model: The decoder.
        source: A file of the input, in the folder of its configurations.

    Raises:
        PreconditionError: GP396, a token id is unknown.
        ReadError: GP116, a configuration of the input is not a JSON object.
    """
    known = _tokens(source)
    missing = [name for name in _PLACES if name not in known]
    if _rotates(model) and missing and model.analysis(find_parts) is not None:
        reason = f"{missing[0]} is not known, and onnxruntime-genai needs it to compute positions of images"
        raise PreconditionError("GP396", reason, "copy config.json of the checkpoint into the folder of the models")


def _tokens(source: Path | None) -> dict[str, int]:
    """Return the entries with the token ids of images."""
    config, stated = configuration(source), section_of(source)
    found = {key: [stated.get(key), *(config.get(name) for name in names)] for key, names in _TOKENS.items()}
    numbers = {key: [value for value in values if isinstance(value, int)] for key, values in found.items()}
    return {key: values[0] for key, values in numbers.items() if values}


def _type(model: Model, source: Path | None) -> str:
    """Return the input's type if it fits the positions of ``model``.

    All types run the same models. They differ in positions, and in the processor that reads images.
    """
    fitting = _ROTATED if _rotates(model) else _COUNTED
    stated = (section_of(source).get("type"), configuration(source).get("model_type"))
    names = [str(name).removesuffix("_text") for name in stated if name is not None]
    return next((name for name in names if name in fitting), fitting[0])


def _rotates(model: Model) -> bool:
    positions = model.graph.parameters.get("position_ids")
    return positions is not None and len(positions.shape or ()) == 3


def _features(vision: Model) -> Port | None:
    """Return the output of a vision model with features."""
    return next((port for port in vision.outputs if port.element_type in REALS), None)


def section_of(source: Path | None, name: str | None = None) -> dict[str, Any]:
    """Return section ``model`` of the input's genai_config.json, or a section of it; empty if missing.

    Args:
        source: A file of the input, in the folder of its configurations.
        name: Name of the section in section ``model``.

    Raises:
        ReadError: GP116, the file is not a JSON object.
    """
    section = configuration(source, "genai_config.json").get("model")
    section = section.get(name) if isinstance(section, dict) and name is not None else section
    return section if isinstance(section, dict) else {}
