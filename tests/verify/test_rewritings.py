"""Harmless rewritings by other tools are not called different, and convert like the models that they were made of."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_graphsurgeon
import onnxruntime
import openvino
import pytest
from onnx import version_converter
from openvino._offline_transformations import apply_moc_transformations
from support.loaded import converted, exported
from support.models import export

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.model_files import find_model
from graphpass.verify import compare_within

#: Makes a model at the second path of the one at the first.
Tool = Callable[[Path, Path], None]


def optimized(source: Path, target: Path) -> None:
    """Let ONNX Runtime fuse what its CPU provider has kernels for."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def folded(source: Path, target: Path) -> None:
    """Fold constants by onnx-graphsurgeon."""
    graph = onnx_graphsurgeon.import_onnx(onnx.load(source))
    onnx.save(onnx_graphsurgeon.export_onnx(graph.fold_constants().cleanup().toposort()), target)


def renamed(source: Path, target: Path) -> None:
    """Rename all nodes and tensors but inputs and outputs; move the data; infer shapes."""
    model = onnx.load(source)
    ports = {port.name: port.name for port in (*model.graph.input, *model.graph.output)}
    counter, names = itertools.count(), {"": "", **ports}

    def new(name: str) -> str:
        return names.setdefault(name, f"t{next(counter)}")

    for node in model.graph.node:
        node.name = ""
        node.input[:], node.output[:] = map(new, node.input), map(new, node.output)
    for tensor in model.graph.initializer:
        tensor.name = new(tensor.name)
    del model.graph.value_info[:]
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    onnx.save(model, target, save_as_external_data=True, location="moved.bin", size_threshold=0)


def newer(source: Path, target: Path) -> None:
    """Convert to opset 21."""
    onnx.save(version_converter.convert_version(onnx.load(source), 21), target)


def transformed(source: Path, target: Path) -> None:
    """Read, and apply OpenVINO's common transformations."""
    model = openvino.Core().read_model(str(source))
    apply_moc_transformations(model, cf=False, smart_reshape=False)
    openvino.save_model(model, target, compress_to_fp16=False)


def stored_in_f16(source: Path, target: Path) -> None:
    """Save with OpenVINO's defaults."""
    openvino.save_model(openvino.Core().read_model(str(source)), target)


FAMILIES = ("bloom", "gemma3_text", "gpt2", "llama", "mistral_sw8", "qwen3_moe")

TOOLS: dict[Tool, str] = {
    optimized: ".onnx",
    folded: ".onnx",
    renamed: ".onnx",
    newer: ".onnx",
    transformed: ".xml",
    stored_in_f16: ".xml",
}


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Tool], Model]:
    @functools.cache
    def made(family: str, tool: Tool) -> Model:
        target = tmp_path_factory.mktemp(family) / f"model{TOOLS[tool]}"
        tool(find_model(export(family, "onnx")), target)
        return load(target)

    return made


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_rewritten_models_are_not_called_different(
    rewritten: Callable[[str, Tool], Model], family: str, tool: Tool
) -> None:
    found = compare_within(exported(f"{family}/onnx"), rewritten(family, tool), steps=1)
    assert found.passed, found.summary()
    assert found.structure is not None
    assert found.structure.added == ()
    # Rounded weights are compared by numbers.
    if tool is not stored_in_f16 and (family, tool) not in LEFT_TO_NUMBERS:
        assert found.structure.is_complete, found.summary()


#: GELU whose polynomial has a common factor in one model alone, a product with a transposed table, and a TopK that
#: may take another of equal elements, as OpenVINO's frontend reads ONNX's.
LEFT_TO_NUMBERS = {("bloom", optimized), ("bloom", transformed), ("gpt2", transformed), ("qwen3_moe", transformed)}


@pytest.mark.parametrize("family", ["llama", pytest.param("bloom", marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["ort", pytest.param("cpu", marks=pytest.mark.slow)])
def test_models_optimized_by_onnx_runtime_convert(
    rewritten: Callable[[str, Tool], Model], family: str, target: str
) -> None:
    """FusedMatMul multiplies scores by their scale, and transposes keys."""
    model = rewritten(family, optimized)
    assert any(True for _ in model.graph.of_op("FusedMatMul"))
    assert analyze_caches(model).kind == "kv"
    result = converted(model, target).model
    forms = Counter(block.form for block in analyze_caches(result).attention)
    assert forms == {"GroupQueryAttention" if target == "ort" else "ScaledDotProductAttention": 2}
    found = compare_within(model, result, steps=2)
    assert found.passed, found.summary()
    assert found.structure is not None
    assert found.structure.is_complete, found.summary()
