"""Pasts and presents that belong together by dataflow, and not by name."""

import pytest
from support.loaded import exported

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.verify import compare, compare_within
from graphpass.verify.pairing import crossed_caches, shared_present


def with_names_exchanged(model, first, second):
    """A copy whose two inputs have each other's names."""
    mutant = model.clone()
    names = {first: second, second: first}
    graph = mutant.proto.graph
    for info in graph.input:
        info.name = names.get(info.name, info.name)
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
    mutant.mark_edited()
    return mutant


def names(layer, role):
    return f"past_key_values.{layer}.{role}"


@pytest.mark.parametrize(
    ("first", "second"),
    [((0, "key"), (1, "key")), ((0, "value"), (1, "value")), ((1, "key"), (1, "value")), ((0, "key"), (1, "value"))],
)
def test_exchanged_names_are_found(first, second):
    model = exported("llama/onnx")
    mutant = with_names_exchanged(model, names(*first), names(*second))
    found = compare(model, mutant, steps=1)
    assert found.divergence is not None
    assert found.divergence.place == "caches"
    assert "by dataflow, but not by name (2 such pairs)" in found.divergence.reason
    in_parts = compare_within(model, mutant, "0.01MB", steps=1)
    assert in_parts.divergence is not None
    again = compare(mutant, mutant, steps=1)
    assert again.passed
    assert any("as in the reference" in warning for warning in again.warnings)


@pytest.mark.parametrize("name", ["llama/onnx", "lfm2/onnx-genai", "gpt2/onnx", "llama/ov-stateless", "mamba/onnx-raw"])
def test_names_of_exports_agree_with_dataflow(name):
    model = exported(name)
    assert not crossed_caches(model)
    if name == "llama/onnx":
        assert not crossed_caches(PassManager(parse_target("ort").pipeline(model)).run(model).model)


@pytest.mark.parametrize(
    ("name", "other"),
    [("present.1.key", "present.0.key"), ("present.0.key", "present.1.key"), ("present.1.key", "present.1.value")],
)
def test_presents_of_other_caches_are_a_difference(name, other):
    model = exported("llama/onnx-genai")
    mutant = model.clone()
    rewriter = mutant.rewriter()
    rewriter.redirect(mutant.graph.writes[name], 0, mutant.graph.writes[other].source())
    rewriter.finish()
    mutant.mark_edited()
    found = compare_within(model, mutant, steps=1)
    first, second = sorted([name, other])
    assert str(found.divergence) == f"caches: {first} and {second} are one value, and two in the reference"
    assert found.structure is not None
    assert [region.operator for region in found.structure.regions] == ["cache"]
    assert shared_present(model, model) is None
