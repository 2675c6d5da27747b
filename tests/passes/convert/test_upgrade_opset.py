"""The pass `upgrade-opset`."""

from __future__ import annotations

import pytest
from support.commands import in_process
from support.models import exporters

from graphpass.dialects.onnx.walk import opset_of
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.engine.pipeline import parse
from graphpass.io import load
from graphpass.verify import compare


def test_the_result_computes_the_same():
    source = load(exporters("ort-script", "gpt2"))
    result = PassManager(parse("upgrade-opset")).run(source)
    assert [opset_of(model.proto) for model in (source, result.model)] == [11, 17]
    assert compare(source, result.model, steps=2).passed
    again = PassManager(parse("upgrade-opset")).run(result.model)
    assert isinstance(again.records[0].result, Skipped)


@pytest.mark.parametrize("target", ["cpu", "ort", "ort-genai"])
def test_targets_run_it_first(target, tmp_path, capfd):
    """Attention with weights of its own, in opset 11, is fused as each runtime can, and proven."""
    arguments = [exporters("ort-script", "gpt2"), "-o", tmp_path / "out", "--target", target, "--require", "proven"]
    done = in_process(capfd, "convert", *arguments)
    assert (done.code, "upgrade-opset" in done.out) == (0, True), done.err
    fused = {"cpu": "ScaledDotProductAttention", "ort": "com.microsoft.Attention", "ort-genai": "GroupQueryAttention"}
    assert sum(1 for _ in load(tmp_path / "out").graph.of_op(fused[target])) == 2
