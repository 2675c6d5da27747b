"""lower-boolean-masks: the same numbers, none of them NaN where a row is masked whole."""

from __future__ import annotations

import numpy
import openvino
from openvino import opset13 as ops
from support.attention_graphs import integers
from support.decode import compiled, fused_attention, greedy
from support.loaded import openvino_model
from support.models import reference
from support.piped import piped

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.devices.lower_boolean_masks import LowerBooleanMasks


def run(model: OpenVINOModel, *others: object) -> tuple[OpenVINOModel, object]:
    return piped(model, *others, LowerBooleanMasks())


def masked_attention(element_type: str = "f32") -> OpenVINOModel:
    """Query, key and value of any length, and a boolean mask."""
    operands = [ops.parameter([1, 2, -1, 4], getattr(openvino.Type, element_type)) for _ in range(3)]
    mask = ops.parameter([1, 1, -1, -1], openvino.Type.boolean)
    attended = ops.scaled_dot_product_attention(*operands, mask)
    again = ops.scaled_dot_product_attention(attended, *operands[1:], mask)
    return OpenVINOModel(openvino.Model([ops.result(again)], [*operands, mask], "attention"))


def test_one_mask_serves_all_that_read_it():
    after, result = run(masked_attention())
    assert result.changed
    assert result.statistics == {"attention": 2, "masks": 1}
    assert [op.get_type_name() for op in after.ov_model.get_ops()].count("Select") == 1


def test_a_mask_has_the_type_of_the_query():
    after, _ = run(masked_attention("f16"))
    attention = [op for op in after.ov_model.get_ops() if op.get_type_name() == "ScaledDotProductAttention"]
    assert {op.get_input_element_type(3).to_string() for op in attention} == {"f16"}


def test_the_same_numbers_and_no_nan():
    before, random = masked_attention(), numpy.random.default_rng(0)
    after, _ = run(before)
    given = [random.standard_normal([1, 2, 5, 4]).astype(numpy.float32) for _ in range(3)]
    mask = numpy.tri(5, dtype=bool)[None, None]
    expected, found = (compiled(model.ov_model)([*given, mask])[0] for model in (before, after))
    numpy.testing.assert_allclose(found, expected, atol=1e-6)
    mask[..., 0, :] = False
    assert numpy.isfinite(compiled(after.ov_model)([*given, mask])[0]).all()


def test_decodes_the_reference_tokens_behind_padding():
    after, result = run(openvino_model("olmo2", "ov-stateless"), FuseAttention(), MakeStateful())
    assert result.changed
    model, expected = compiled(after.ov_model), reference("olmo2")
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    assert greedy(model.create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]
    assert fused_attention(model) == 2


def test_twice():
    once, _ = run(masked_attention())
    assert not run(once)[1].changed


def test_masks_that_are_numbers_stay():
    model = openvino_model("llama")
    after, result = run(model)
    assert not result.changed
    assert after.digest() == model.digest()


def decomposed_attention(lowest: float) -> OpenVINOModel:
    """Scores to which a mask is added that hides positions by ``lowest``."""
    scores, mask = (
        ops.parameter([1, 2, -1, -1], openvino.Type.f32),
        ops.parameter([1, 1, -1, -1], openvino.Type.boolean),
    )
    numbers = [ops.constant(number, dtype=openvino.Type.f32) for number in (0.0, lowest)]
    added = ops.add(scores, ops.reshape(ops.select(mask, *numbers), integers(0, 0, 0, 0), special_zero=True))
    return OpenVINOModel(openvino.Model([ops.result(ops.softmax(added, 3))], [scores, mask], "decomposed"))


def test_numbers_that_f16_does_not_hold_are_bounded():
    before, random = decomposed_attention(-3.4028235e38), numpy.random.default_rng(0)
    after, result = run(before)
    assert result.changed
    assert result.statistics == {"masks bounded": 1}
    given = [random.standard_normal([1, 2, 5, 5]).astype(numpy.float32), numpy.tri(5, dtype=bool)[None, None]]
    expected, found = (compiled(model.ov_model)(given)[0] for model in (before, after))
    numpy.testing.assert_array_equal(found, expected)
    (bounded,) = (op for op in after.ov_model.get_ops() if op.get_type_name() == "Maximum")
    assert bounded.input_value(1).get_node().data >= numpy.finfo(numpy.float16).min


def test_numbers_that_f16_holds_are_left():
    assert not run(decomposed_attention(-65504.0))[1].changed
