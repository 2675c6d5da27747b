"""Definitions of equal functions are equal expressions."""

import pytest
from verify.structure.comparing import is_equal, model_of_function, read_by_openvino

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.step import LENGTH, PAST, TOTAL
from graphpass.verify.structure.algebra import Algebra
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.masks import KnownMasks


def test_long_sums_have_one_definition_whatever_their_first_term_is():
    """The order of terms depends on the names of indices, by which a sum was normalized."""
    definitions = Definitions(Algebra(AngleTables(frozenset()), 10_000, []), KnownMasks())

    def squared(index: ex.Expr) -> ex.Expr:
        terms = (ex.multiply(ex.number(2 + place), ex.read(f"t{place}", (index,), "real")) for place in range(9))
        long = ex.add(*terms)
        return definitions.algebra.normal(ex.multiply(long, long))

    for name in map(str, range(20)):
        index = ex.index(name, ex.number(4))
        assert ex.substitute(squared(ex.index("k", ex.number(4))), {ex.index("k", ex.number(4)): index}) is squared(
            index
        )


@pytest.mark.parametrize("kind", ["level", "sum"])
def test_indices_with_several_offsets_have_one_form(kind):
    """One model reads an appended element by its place in the cache, the other by that of the new token."""
    definitions = Definitions(Algebra(AngleTables(frozenset()), 1000, []), KnownMasks())

    def element(new: ex.Expr, position: ex.Expr) -> ex.Expr:
        return ex.multiply(ex.read("new", (new,), "real"), ex.read("angle", (position,), "real"))

    key, token = ex.index("key", TOTAL), ex.index("token", LENGTH)
    of_cache = definitions.abstract(kind, (), (element(ex.subtract(key, PAST), key),), ())
    of_token = definitions.abstract(kind, (), (element(token, ex.add(PAST, token)),), ())
    assert ex.substitute(of_cache, {key: ex.add(PAST, token)}) is of_token


def test_distances_of_visible_keys_have_one_sign():
    """ALiBi by absolute distances equals ALiBi by positions of keys where the mask is causal."""
    definitions = Definitions(Algebra(AngleTables(frozenset()), 1000, []), KnownMasks())
    key, query = ex.index("key", TOTAL), ex.index("query", LENGTH)
    slope, distance = ex.read("slope", (), "real"), ex.subtract(key, ex.add(PAST, query))
    causal = ex.at_most(distance, ex.ZERO)
    absolute = ex.choose(ex.less(ex.ZERO, distance), ex.negative(distance), distance)

    def softmax(visible: ex.Expr, bias: ex.Expr) -> ex.Expr:
        return definitions.softmax(visible, ex.multiply(slope, bias), key)

    assert softmax(causal, absolute) is softmax(causal, key)
    assert softmax(causal, absolute) is not softmax(causal, ex.multiply(ex.number(2), key))
    assert softmax(ex.TRUE, absolute) is not softmax(ex.TRUE, key)


#: Interleaved rotary embedding of 8 of 16 channels, which OpenVINO's frontend computes by halves.
ROTATED = """
        cosines = Unsqueeze(c, zero)
        sines = Unsqueeze(s, zero)
        rotated = RotaryEmbedding<interleaved=1, rotary_embedding_dim=8>(x, cosines, sines)
"""
SCORES = "keys = Transpose<perm=[0, 1, 3, 2]>(rotated) scores = MatMul(rotated, keys)"


@pytest.mark.parametrize(
    ("result", "other"),
    [
        ("y = Squeeze(rotated, one)", "y = Squeeze(x, one)"),
        (f"{SCORES} y = Squeeze(scores, one)", f"{SCORES} half = Squeeze(scores, one) y = Add(half, half)"),
    ],
)
def test_interleaved_rotary_embeddings_of_some_channels(result, other):
    """Halves are found by quotients of a channel, of which the condition on rotated channels decides some."""
    inputs = "float[1, 1, 3, 16] x, float[3, 4] c, float[3, 4] s"
    model = model_of_function(ROTATED + result, inputs, opset=23)
    assert is_equal(model, read_by_openvino(model))
    assert not is_equal(model, read_by_openvino(model_of_function(ROTATED + other, inputs, opset=23)))
