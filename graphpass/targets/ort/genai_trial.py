"""Try a model on onnxruntime-genai, with a prompt and two tokens."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import numpy

from graphpass.engine.findings import Observation
from graphpass.errors import GraphpassError
from graphpass.ir.model import Model

_MODULE, _HINT = "onnxruntime_genai", "pip install 'graphpass[ort-genai]'"


def observe(model: Model, context: int | None) -> Observation | str:
    """Open ``model`` in a folder of its own and generate; return the obstacle otherwise."""
    from graphpass.dialects.onnx.files import stage_onnx
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.targets.ort.genai_config import genai_config

    if importlib.util.find_spec(_MODULE) is None:
        return f"onnxruntime-genai is not installed: {_HINT}"
    import onnxruntime_genai

    assert isinstance(model, OnnxModel)
    tried = f"generated on onnxruntime-genai {onnxruntime_genai.__version__}"
    try:
        config = genai_config(model, model.path, context)
    except GraphpassError as error:
        return Observation(tried, refused=error.message)
    with tempfile.TemporaryDirectory(prefix=".graphpass_genai-") as name:
        folder = Path(name)
        stage_onnx(model.proto, model.path, folder, "model.onnx", link=True)
        (folder / "genai_config.json").write_text(config, encoding="utf-8")
        try:
            _generate(folder)
        except RuntimeError as error:
            return Observation(tried, refused=" ".join(str(error).split()))
    return Observation(f"{tried}, a prompt and two tokens")


def _generate(folder: Path) -> None:
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(folder))
    options = onnxruntime_genai.GeneratorParams(model)
    options.set_search_options(max_length=8, min_length=8)
    generator = onnxruntime_genai.Generator(model, options)
    generator.append_tokens(numpy.array([[5, 9, 17]], numpy.int32))
    for _ in range(2):
        generator.generate_next_token()
