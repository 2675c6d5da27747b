"""Configuration of a folder for transformers.js."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.model import Model
from graphpass.targets.ort.context import configuration
from graphpass.targets.web.rules import caches_for

DataType = Literal["fp32", "fp16", "q4", "q4f16"]

#: Suffixes of file names by type (``src/utils/dtypes.js`` of transformers.js 4.3.1).
SUFFIXES: Mapping[DataType, str] = {"fp32": "", "fp16": "_fp16", "q4": "_q4", "q4f16": "_q4f16"}


def data_type_of(model: Model) -> DataType:
    """Return the ``dtype`` of a model in transformers.js."""
    in_half = any(cache.element_type == "f16" for cache in analyze_caches(model).caches)
    if any(True for _ in model.graph.of_op("MatMulNBits")):
        return "q4f16" if in_half else "q4"
    return "fp16" if in_half else "fp32"


def config_file(model: Model, source: Path | None, device: str, file: str) -> str:
    """Return the text of ``config.json``.

    Args:
        model: The result.
        source: A file of the input, in the folder of its configuration.
        device: Default device for transformers.js.
        file: Path of the model in the folder.

    Raises:
        ReadError: GP116, the configuration of the input is not a JSON object.
    """
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.shards import count_shards

    assert isinstance(model, OnnxModel)
    name = PurePosixPath(file).name
    suffixes = {suffix: kind for kind, suffix in SUFFIXES.items()}
    settings: dict[str, Any] = {"dtype": suffixes[name.removeprefix("model").removesuffix(".onnx")], "device": device}
    if shards := count_shards(model):
        settings["use_external_data_format"] = {name: shards}
    config = configuration(source)
    config = {name: value for name, value in config.items() if name not in {"text_config", "vision_config"}}
    if any(str(name).endswith("ForConditionalGeneration") for name in config.get("architectures") or ()):
        # With this entry, transformers.js loads a class for several files.
        del config["architectures"]
    named = caches_for(model, analyze_caches(model))
    if named.stand_in is not None:
        config = {name: value for name, value in config.items() if name not in _OF_OTHER_TYPES}
        config |= named.stand_in
    return json.dumps(config | {"transformers.js_config": settings}, indent=2) + "\n"


#: Entries that would make transformers.js feed other caches.
_OF_OTHER_TYPES = frozenset({"multi_query", "is_encoder_decoder", "layer_types", "layers_block_type", "architectures"})
