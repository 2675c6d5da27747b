"""widen-conv-window: paged attention takes the convolutions, and every result stays what it was."""

from __future__ import annotations

import functools

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from openvino._offline_transformations import paged_attention_transformation
from support.attention_graphs import integers
from support.decode import Decoder, compiled, greedy
from support.loaded import onnx_model, openvino_model
from support.models import reference
from support.pipelines import run_passes

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.caches.widen_conv_window import WidenConvWindow
from graphpass.targets.consumers.genai import view


@functools.cache
def narrow() -> OpenVINOModel:
    """LFM2 from ONNX Runtime GenAI's builder."""
    model = onnx_model("lfm2", "onnx-genai")
    passes = [one for one in graphpass.get_target("cpu").pipeline(model) if one.name != "widen-conv-window"]
    converted = PassManager(passes).run(model).model
    assert isinstance(converted, OpenVINOModel)
    return converted


def run(model: graphpass.Model, *others: graphpass.Pass) -> tuple[OpenVINOModel, object]:
    return run_passes(model, *others, WidenConvWindow())


def test_windows_are_as_wide_as_the_kernel():
    after, result = run(narrow())
    assert result.changed
    assert result.statistics == {"windows widened": 2}
    caches = graphpass.analyze_caches(after)
    assert [cache.shape for cache in caches.of_kind("linear")] == [(None, 64, 3)] * 2
    assert view(after, caches).verdict == "agrees"


def test_decodes_the_reference_tokens_after_padding():
    expected = reference("lfm2")
    request = compiled(run(narrow())[0].ov_model).create_infer_request()
    prompts = [expected["prompt_ids"], [17, 4, 9, *expected["prompt_ids"]]]
    assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


def test_paged_attention_fuses_the_result(tmp_path):
    after, _ = run(narrow())
    graphpass.save(after, tmp_path / "model.xml")
    for model, taken in ((narrow(), False), (graphpass.load(tmp_path / "model.xml"), True)):
        paged = model.ov_model.clone()
        if taken:
            paged_attention_transformation(paged)
            assert not [op for op in paged.get_ops() if op.get_type_name() == "ReadValue"]
        else:
            with pytest.raises(RuntimeError):
                paged_attention_transformation(paged)


def test_a_second_run_changes_nothing():
    once, _ = run(narrow())
    again, result = run(once)
    assert not result.changed
    assert again.digest() == once.digest()


@pytest.mark.parametrize("name", ["lfm2", "granitemoehybrid", "qwen3_next", "mamba", "llama"])
def test_windows_of_optimum_are_wide_already(name):
    model = openvino_model(name)
    after, result = run(model)
    assert not result.changed
    assert after.digest() == model.digest()


def test_stateless_models_are_refused():
    with pytest.raises(PreconditionError, match="GP302"):
        run(openvino_model("lfm2", "ov-stateless"))


CHANNELS, KERNEL = 4, 3


def convolving(*, bias: bool = False, dilation: int = 1, start: int | None = None) -> OpenVINOModel:
    """``input_ids`` through one convolution with a window: ``logits [batch, length, channels]``."""
    random = numpy.random.default_rng(5)
    width = (KERNEL - 1) * dilation
    ids, past = ops.parameter([-1, -1], openvino.Type.i64), ops.parameter([-1, CHANNELS, width], openvino.Type.f32)
    for node, name in ((ids, "input_ids"), (past, "past.0.conv")):
        node.set_friendly_name(name)
        node.output(0).set_names({name})
    table = ops.constant(random.standard_normal([9, CHANNELS]).astype(numpy.float32))
    columns = ops.transpose(ops.gather(table, ids, ops.constant(0)), integers(0, 2, 1))
    joined = ops.concat([past, columns], 2)
    weights = ops.constant(random.standard_normal([CHANNELS, 1, 1, KERNEL]).astype(numpy.float32))
    made = ops.group_convolution(joined, weights, [1], [0], [0], [dilation])
    if bias:
        made = ops.add(made, ops.constant(random.standard_normal([1, CHANNELS, 1]).astype(numpy.float32)))
    first = integers(-width if start is None else start)
    kept = ops.slice(joined, first, integers(2**63 - 1), integers(1), integers(2))
    weight = ops.constant(random.standard_normal([CHANNELS, CHANNELS]).astype(numpy.float32))
    logits = ops.matmul(ops.transpose(made, integers(0, 2, 1)), weight, False, False)
    results = [ops.result(logits), ops.result(kept)]
    for result, name in zip(results, ("logits", "present.0.conv"), strict=True):
        result.set_friendly_name(name)
        result.output(0).add_names({name})
    return OpenVINOModel(openvino.Model(results, [ids, past], "convolving"))


@pytest.mark.parametrize("bias", [False, True])
def test_small_models_compute_the_same(bias):
    before = PassManager([MakeStateful()]).run(convolving(bias=bias)).model
    after, result = run(before)
    assert result.changed
    decoders = [Decoder(compiled(model.ov_model).create_infer_request()) for model in (before, after)]
    for ids in ([[1, 2, 3, 4, 5]], [[6]], [[7, 8]], [[1]]):
        expected, found = (decoder.step(numpy.array(ids * 2)) for decoder in decoders)
        numpy.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("form", [{"dilation": 2}, {"start": -1}])
def test_other_windows_stay(form):
    model = convolving(**form)
    if "start" in form:
        model.ov_model.reshape({"past.0.conv": [-1, CHANNELS, 1]})
        model.mark_edited()
    _, result = run(model, MakeStateful(beam_index=False))
    assert not result.changed
