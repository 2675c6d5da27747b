"""Shares of scores: of equal ones, of one key, and of masked keys."""

from __future__ import annotations

import onnx
import onnx.parser
from verify.structure.comparing import is_equal, read_by_openvino

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.nodes import make
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.testing import parse_model
from graphpass.verify.structure.softmax import split_mask


def equal_scores(factor: float) -> OnnxModel:
    """Return a softmax of scores that are equal for all keys, of a number known in the step only."""
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    equal_scores (float[batch, length, 1] hidden) => (float[batch, length, keys] logits) {{
        sizes = Shape <end = 2> (hidden)
        keys = Shape <end = 1> (hidden)
        shape = Concat <axis = 0> (sizes, keys)
        scores = Expand (hidden, shape)
        shares = Softmax <axis = 2> (scores)
        factor = Constant <value_float = {factor}> ()
        logits = Mul (shares, factor)
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def test_equal_scores_have_equal_shares():
    assert is_equal(equal_scores(1.0), read_by_openvino(equal_scores(1.0)))
    assert not is_equal(equal_scores(1.0), equal_scores(2.0))


def attention_to_one_key(*more: str) -> OpenVINOModel:
    text = f"""%hidden = Parameter : f32[batch, 2, length, 4]
    %key = Parameter : f32[batch, 2, 1, 4]
    %mask = Parameter : boolean[batch, 1, length, 1]
    %logits = ScaledDotProductAttention({", ".join(["%hidden", "%key", *more])}) {{causal=false}}
    Result(%logits) {{name=logits}}"""
    return parse_model(text, "openvino")


def test_the_share_of_one_key_is_1_unless_a_mask_may_hide_it():
    assert is_equal(attention_to_one_key("%key"), attention_to_one_key("%key"))
    assert not is_equal(attention_to_one_key("%key"), attention_to_one_key("%key", "%mask"))
    assert is_equal(attention_to_one_key("%key", "%mask"), attention_to_one_key("%key", "%mask"))


def test_scores_raised_to_the_lowest_number_keep_their_mask():
    lowest, score = ex.number(-3.4e38), ex.read("score", (), "real")
    assert split_mask(ex.maximum(score, lowest)) == (ex.TRUE, score)
    assert split_mask(ex.maximum(lowest, score)) == (ex.TRUE, score)
    assert split_mask(ex.minimum(score, lowest)) != (ex.TRUE, score)
    assert split_mask(ex.minimum(lowest, score)) != (ex.TRUE, score)


def test_a_mask_may_be_scaled_with_the_scores():
    hidden, score = ex.less(ex.index("k", ex.length("total", 1)), ex.length("pads")), ex.read("score", (), "real")
    mask = make("times", (ex.number(0.25), ex.choose(hidden, ex.number(-3.4e38), ex.ZERO)), "real")
    assert split_mask(ex.add(score, mask)) == (ex.negate(hidden), score)
    bias = make("times", (ex.number(0.25), ex.choose(hidden, ex.number(-3.4), ex.ZERO)), "real")
    assert split_mask(ex.add(score, bias))[0] is ex.TRUE
