"""drop-row-guards: zeros for tokens that see no key go, others stay."""

import pytest
from support.loaded import exported
from support.models import exporters

import graphpass
from graphpass.io import load
from graphpass.passes.masks.drop_row_guards import GUARD, DropRowGuards
from graphpass.verify import compare


@pytest.mark.parametrize("before", ["", "to-openvino,fuse-attention,"], ids=["decomposed", "fused"])
def test_guards_around_attention_are_dropped(before):
    given = load(exporters("transformers-onnx", "llama"))
    result = graphpass.PassManager(graphpass.parse(f"{before}drop-row-guards")).run(given)
    assert result.records[-1].result.statistics == {"guards dropped": 2}
    assert not any(GUARD.find(result.model.graph))
    assert compare(given, result.model, steps=3).passed


def test_models_without_guards_stay():
    assert graphpass.PassManager((DropRowGuards(),)).run(exported("llama/onnx")).changed is False
