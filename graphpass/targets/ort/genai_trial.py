"""Trial on onnxruntime-genai, with a prompt and two tokens."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy
from numpy.typing import NDArray

from graphpass.analysis.symbolic.hidden_size import row_size
from graphpass.engine.findings import Observation
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.inputs import EMBEDDINGS, TARGET_STATES
from graphpass.ir.model import Model
from graphpass.ir.operators import COMPRESSED_PRODUCTS
from graphpass.runtime.backends.failures import message_of
from graphpass.runtime.sessions.inputs import numpy_type

Array: TypeAlias = NDArray[Any]

_MODULE, _HINT = "onnxruntime_genai", "pip install 'graphpass[ort-genai]'"

#: Option of ONNX Runtime's sessions: kernels read the mapped weights, without a repacked copy of all of them. Products
#: with compressed weights then decompress them in each step.
_UNPACKED = {"session.disable_prepacking": "1"}

#: Errors are raised, so only fatal ones are logged; the lowest severity is 0.
_QUIET = {"log_severity_level": 4}


def observe(model: Model, context: int | None) -> Observation | str:
    """Generate with ``model`` in onnxruntime-genai.

    Args:
        model: A decoder in ONNX.
        context: Number of positions; ``None`` for that in config.json beside the model.

    Returns:
        The observation, or the reason why no trial is possible.
    """
    from graphpass.targets.ort.genai_config import genai_config
    from graphpass.targets.ort.genai_parts import find_parts

    parts = model.analysis(find_parts) if EMBEDDINGS in model.graph.parameters else None
    models = {"model.onnx": model} if parts is None else {**parts.models, parts.decoder: model}
    return _observe(models, lambda: genai_config(model, model.path, context), states=_state_row(model))


def _state_row(model: Model) -> Array | None:
    """Return zeros ``[1, 1, features]`` for a draft's input of states; ``None`` for other models."""
    states, size = model.graph.parameters.get(TARGET_STATES), row_size(model, TARGET_STATES)
    if states is None or size is None:
        return None
    return numpy.zeros([1, 1, size], numpy_type(states.element_type, f"input {TARGET_STATES}"))


def observe_whisper(encoder: Model, decoder: Model, context: int | None) -> Observation | str:
    """Generate from silence in onnxruntime-genai.

    Args:
        encoder: The audio encoder.
        decoder: Its decoder.
        context: Number of positions; ``None`` for that in config.json beside the decoder.

    Returns:
        The observation, or the reason why no trial is possible.
    """
    from graphpass.targets.ort.genai_whisper import FRAMES, whisper_config

    port = encoder.inputs[0]
    sizes = [size if isinstance(size, int) else FRAMES for size in (port.shape or ())[1:]]
    features = {port.name: numpy.zeros([1, *sizes], numpy.float16 if port.element_type == "f16" else numpy.float32)}
    models = {"encoder.onnx": encoder, "decoder.onnx": decoder}
    return _observe(models, lambda: whisper_config(encoder, decoder, decoder.path, context), features)


def _observe(
    models: Mapping[str, Model],
    configure: Callable[[], str],
    features: Mapping[str, Array] | None = None,
    states: Array | None = None,
) -> Observation | str:
    from graphpass.dialects.onnx.files import stage_onnx
    from graphpass.dialects.onnx.model import OnnxModel

    if importlib.util.find_spec(_MODULE) is None:
        return f"onnxruntime-genai is not installed: {_HINT}"
    import onnxruntime_genai

    tried = f"generated on onnxruntime-genai {onnxruntime_genai.__version__}"
    try:
        config = configure()
    except (PreconditionError, UnsupportedError) as error:
        # Without a configuration, the runtime cannot open the model.
        return error.message
    with tempfile.TemporaryDirectory(prefix=".graphpass_genai-") as name:
        folder = Path(name)
        for file, model in models.items():
            assert isinstance(model, OnnxModel)
            place = folder / file
            place.parent.mkdir(exist_ok=True)
            stage_onnx(model.proto, model.path, place.parent, place.name, link=True)
        config = _with_session_options(config, _QUIET)
        texts = [config]
        if not any(True for model in models.values() for _ in model.graph.of_op(*COMPRESSED_PRODUCTS, "QMoE")):
            # Kernels may support repacked weights only, so only a refusal with the options of the result counts.
            texts.insert(0, _with_session_options(config, _UNPACKED))
        for text in texts:
            (folder / "genai_config.json").write_text(text, encoding="utf-8")
            if (refused := _refusal(folder, features, states)) is None:
                return Observation(f"{tried}, a prompt and two tokens")
    return Observation(tried, refused=refused)


def _with_session_options(config: str, options: Mapping[str, str | int]) -> str:
    """Return a ``genai_config.json`` with ``options`` for the session of each model."""
    content = json.loads(config)
    for section in content["model"].values():
        if isinstance(section, dict) and "filename" in section:
            section["session_options"] = {**section.get("session_options", {}), **options}
    return json.dumps(content)


def _refusal(folder: Path, features: Mapping[str, Array] | None, states: Array | None) -> str | None:
    try:
        _generate(folder, features, states)
    except (RuntimeError, UnicodeDecodeError) as error:
        return " ".join(message_of(error).split())
    return None


def _generate(folder: Path, features: Mapping[str, Array] | None, states: Array | None) -> None:
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=8, min_length=8)
    generator = onnxruntime_genai.Generator(model, options)
    if features is not None:
        tensors = onnxruntime_genai.NamedTensors()
        for name, values in features.items():
            tensors[name] = values
        generator.set_inputs(tensors)
    prompt = [5, 9, 17]
    if states is not None:
        generator.set_hidden_states(states.repeat(len(prompt), axis=1))
    generator.append_tokens(numpy.array([prompt], numpy.int32))
    for _ in range(2):
        if states is not None:
            generator.set_hidden_states(states)
        generator.generate_next_token()
