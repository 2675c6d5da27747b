"""Weights that another tool rounded, and weights with one wrong number."""

import numpy
import openvino
import pytest
from support.loaded import exported
from support.models import export

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.model_files import find_model
from graphpass.verify import compare


def saved(model, folder):
    """The model as OpenVINO saves it by default, with weights in f16."""
    openvino.save_model(model.ov_model, folder / "model.xml")
    return load(folder / "model.xml")


def with_one_number(model, change, number=-1):
    """A copy in which the largest number of one weight is another one."""
    mutant = model.clone()
    rewriter, graph = mutant.rewriter(), mutant.graph
    known = [node for node in graph.of_op("Constant") if node.outputs[0].rank == 2 and len(node.outputs[0].shape) == 2]
    held = {node.index: graph.constant(node.outputs[0], 1 << 24) for node in known}
    large = [
        node
        for node in known
        if (array := held[node.index]) is not None and array.size > 512 and array.dtype.kind == "f"
    ]
    value = large[number].outputs[0]
    changed = held[value.node].copy()
    changed.flat[numpy.abs(changed).argmax()] *= change
    rewriter.redirect_uses(value, rewriter.under("fault").constant(changed, element_type=value.element_type))
    rewriter.finish()
    mutant.mark_edited()
    return mutant


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("llama", "ov-stateful"),
        ("lfm2", "ov-stateful"),
        pytest.param("gemma3_text", "ov-stateful", marks=pytest.mark.slow),
        pytest.param("qwen3", "ov-stateless", marks=pytest.mark.slow),
        pytest.param("granitemoehybrid", "ov-stateful", marks=pytest.mark.slow),
    ],
)
def test_weights_stored_in_f16_are_not_a_difference(name, variant, tmp_path):
    model = load(find_model(export(name, variant)))
    found = compare(model, saved(model, tmp_path), steps=3)
    assert found.passed, found.summary()
    assert found.max_abs_difference < 1e-3
    assert any(words.startswith("rounding of ") and "the same rounding" in words for words in found.skipped)


def test_faults_beside_rounded_weights_are_found(tmp_path):
    model = exported("llama/ov-stateful")
    result = saved(with_one_number(model, 1.05), tmp_path)
    found = compare(model, result, steps=3)
    assert not found.passed


@pytest.mark.parametrize("variant", ["onnx", "ov-stateful"])
@pytest.mark.parametrize("number", [0, 2, -1])
def test_one_wrong_number_of_a_weight_is_found(variant, number):
    """Logits move by less than the tolerance."""
    model = exported(f"llama/{variant}")
    found = compare(model, with_one_number(model, 1 + 1e-5, number), steps=1)
    assert found.divergence is not None
    assert found.divergence.place is not None
    assert "numbers differ from those of" in found.divergence.reason


def test_one_wrong_number_of_a_converted_weight_is_found():
    model = exported("llama/onnx")
    result = PassManager(parse_target("cpu").pipeline(model)).run(model).model
    found = compare(model, with_one_number(result, 1 + 1e-5), steps=1)
    assert found.divergence is not None
    assert "1 of " in found.divergence.reason
