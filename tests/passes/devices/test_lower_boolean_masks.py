"""lower-boolean-masks: the same numbers, none of them NaN where a row is masked whole."""

from __future__ import annotations

import numpy
import openvino
from openvino import opset13 as ops
from support.decode import compiled, fused_attention, greedy
from support.loaded import openvino_model
from support.models import reference
from support.pipelines import run_passes

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.devices.lower_boolean_masks import LowerBooleanMasks


def run(model: OpenVINOModel, *others: object) -> tuple[OpenVINOModel, object]:
    return run_passes(model, *others, LowerBooleanMasks())


def masked_attention(element_type: str = "f32") -> OpenVINOModel:
    """Query, key and value of any length, and a boolean mask."""
    operands = [ops.parameter([1, 2, -1, 4], getattr(openvino.Type, element_type)) for _ in range(3)]
    mask = ops.parameter([1, 1, -1, -1], openvino.Type.boolean)
    attended = ops.scaled_dot_product_attention(*operands, mask)
    again = ops.scaled_dot_product_attention(attended, *operands[1:], mask)
    return OpenVINOModel(openvino.Model([ops.result(again)], [*operands, mask], "attention"))


def test_the_same_numbers_and_no_nan():
    before, random = masked_attention(), numpy.random.default_rng(0)
    after, _ = run(before)
    given = [random.standard_normal([1, 2, 5, 4]).astype(numpy.float32) for _ in range(3)]
    mask = numpy.tri(5, dtype=bool)[None, None]
    expected, found = (compiled(model.ov_model)([*given, mask])[0] for model in (before, after))
    numpy.testing.assert_allclose(found, expected, atol=1e-6)
    mask[..., 0, :] = False
    assert numpy.isfinite(compiled(after.ov_model)([*given, mask])[0]).all()


def test_decodes_the_reference_tokens_after_padding():
    after, result = run(openvino_model("olmo2", "ov-stateless"), FuseAttention(), MakeStateful())
    assert result.changed
    model, expected = compiled(after.ov_model), reference("olmo2")
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    assert greedy(model.create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]
    assert fused_attention(model) == 2
