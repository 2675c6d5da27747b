"""What the GPU plugin makes of the models that are made for it: compiled where an environment stands in for a GPU."""

from __future__ import annotations

import numpy
import pytest
from support.decode import Decoder, compiled
from support.loaded import openvino_model
from support.models import reference

from graphpass.checks import check_model
from graphpass.checks.subprocesses import run_worker
from graphpass.manager import PassManager
from graphpass.pipeline import parse_target

#: Feeds a prompt and two tokens.
_WORKER = """
import json, sys, numpy, openvino
path, where = sys.argv[1:]
core = openvino.Core()
request = core.compile_model(core.read_model(path), "GPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
names = [name for port in request.model_inputs for name in port.get_names()]
seen, found = 0, []
for ids in %r:
    length, seen = len(ids), seen + len(ids)
    feeds = {
        "input_ids": numpy.array([ids], numpy.int64),
        "attention_mask": numpy.ones([1, seen], numpy.int64),
        "position_ids": numpy.arange(seen - length, seen, dtype=numpy.int64)[None],
        "beam_idx": numpy.zeros(1, numpy.int32),
    }
    found.append(request.infer({name: feeds[name] for name in names if name in feeds})["logits"][0, -1].tolist())
with open(where, "w") as file:
    json.dump({"logits": found}, file)
"""


def fused(model):
    report = check_model(model, "gpu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    return sum(finding.verdict == "fused" for finding in report.findings)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["llama", "qwen3", "lfm2", "qwen3_next", "deepseek_v3"])
def test_both_forms_compile(name):
    """The beam form, and the reorder form as 2026.4.1 fuses it, with as many caches in kernels as optimum's export."""
    source = openvino_model(name)
    count = fused(source)
    for text, expected in (
        ("gpu", count),
        ("gpu{cache=reorder,trim=begin-one}", count),
        ("gpu{cache=reorder}", 0),
    ):
        made = PassManager(parse_target(text).pipeline(source)).run(source).model
        assert (text, fused(made)) == (text, expected)


@pytest.mark.slow
def test_the_beam_form_computes_what_the_cpu_does(gpu, monkeypatch):
    monkeypatch.setenv("FAKEGPU_MODE", "lazy")
    source, steps = openvino_model("llama"), [reference("llama")["prompt_ids"], [9], [17]]
    made = PassManager(parse_target("gpu").pipeline(source)).run(source).model
    done = run_worker(_WORKER % (steps,), made, gpu)
    assert done.crashed is None, done.crashed
    decoder = Decoder(compiled(source.ov_model).create_infer_request())
    for found, ids in zip(done.found["logits"], steps, strict=True):
        right = decoder.step(numpy.array([ids]))[0]
        numpy.testing.assert_allclose(found, right, atol=2e-3 * abs(right).max())
