"""The LM head, split into ranges of token ids."""

import numpy
import pytest

from graphpass.runtime import open_session
from graphpass.testing import parse_model, tiny_model
from graphpass.verify.layers.head import LOGITS, find_head, with_words

HEAD = """%x = Parameter : f32[b, n, 8]
%w = Constant : f32[8, 32]
%bias = Constant : f32[32]
%product = MatMul(%x, %w)
{}
Result(%y) {{name=logits}}"""


def head_of(model):
    (logits,) = [node for node in model.graph.of_op("Result") if node.name == LOGITS]
    return find_head(model.graph, logits)


@pytest.mark.parametrize(
    ("after", "is_found"),
    [
        ("%y = Multiply(%product, 0.5)", True),
        ("%s = Multiply(%product, 0.1)\n%t = Tanh(%s)\n%y = Multiply(%t, 30.0)", True),
        # These depend on the token id.
        ("%y = Add(%product, %bias)", False),
    ],
)
def test_operators_after_the_head_treat_words_alike(after, is_found):
    head = head_of(parse_model(HEAD.format(after)))
    assert (head is not None) == is_found
    if head is not None:
        assert (head.product.name, head.weights.name, head.slices) == ("product", "w", ((0, 32),))


def test_computed_weights_are_no_head():
    text = HEAD.replace("%w = Constant", "%v = Constant").replace("%bias", "%w = Add(%v, %v)\n%bias")
    assert head_of(parse_model(text.format("%y = Relu(%product)"))) is None


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize("words", [(0, 10), (10, 64)])
def test_ranges_have_the_logits_of_the_whole(dialect, words):
    model = tiny_model("llama", dialect, layers=1)
    part = with_words(model, words)
    whole, some = (open_session(each).prefill([[5, 6, 7]]) for each in (model, part))
    assert some.shape[-1] == words[1] - words[0]
    numpy.testing.assert_allclose(some, whole[..., slice(*words)], atol=1e-6)
