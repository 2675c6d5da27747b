"""Signs of numbers, and numbers that are undefined for some inputs, which no rewriting may hide."""

from __future__ import annotations

import numpy
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from graphpass.analysis.symbolic import expressions as ex
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.comparer import Comparer
from graphpass.verify.structure.question import Question
from graphpass.verify.structure.signs import is_positive, is_total
from graphpass.verify.structure.weights import WeightDigests

X = ex.read("x", (), "real")
SQUARE = ex.make("raise", (X, 2.0), "real")
SHIFTED = ex.add(SQUARE, ex.number(0.5))


@pytest.mark.parametrize(
    ("expr", "positive", "total"),
    [
        (X, False, True),
        (SHIFTED, True, True),
        (ex.apply("exp", (X,)), True, True),
        (ex.apply("log", (X,)), False, False),
        (ex.apply("log", (SHIFTED,)), False, True),
        (ex.apply("sqrt", (X,)), False, False),
        (ex.apply("sqrt", (SQUARE,)), False, True),
        (ex.make("raise", (SQUARE, -0.5), "real"), False, False),
        (ex.make("raise", (SHIFTED, -0.5), "real"), True, True),
        (ex.divide(X, SQUARE), False, False),
        (ex.divide(X, SHIFTED), False, True),
    ],
)
def test_signs_and_domains_of_expressions(expr, positive, total):
    assert (is_positive(expr), is_total(expr)) == (positive, total)


def model_of(body: str) -> OnnxModel:
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    undefined (float[batch, length, 4] states, float[batch, length, 4] y) => (float[batch, length, 4] logits) {{
        x = Relu (states)
        zero = Constant <value_float = 0.0> ()
        one = Constant <value_ints = [1]> ()
        last = Constant <value_ints = [2]> ()
        lowest = Constant <value_float = -3.402823466e+38> ()
        {body}
    }}"""
    proto = onnx.parser.parse_model(text)
    # The text form has no infinite numbers.
    proto.graph.initializer.append(numpy_helper.from_array(numpy.float32(-numpy.inf), "infinity"))
    return OnnxModel(onnx.shape_inference.infer_shapes(proto))


def is_equal(*bodies: str) -> bool:
    reference, candidate = map(model_of, bodies)
    weights = WeightDigests((reference, candidate))
    return not Comparer((reference, candidate), weights, Question(("logits",)), unpadded=False).unequal()


@pytest.mark.parametrize(
    "body",
    [
        "log = Log (y) none = Mul (log, zero) logits = Add (x, none)",
        "root = Sqrt (y) none = Sub (root, root) logits = Add (x, none)",
        "none = Div (zero, y) logits = Add (x, none)",
        "power = Pow (y, y) none = Mul (power, zero) logits = Add (x, none)",
        "rest = Mod <fmod = 1> (y, zero) none = Mul (rest, zero) logits = Add (x, none)",
        "log = Log (y) is = Equal (log, log) one_or_none = Cast <to = 1> (is) logits = Mul (x, one_or_none)",
        "log = Log (y) rows = Slice (log, one, last, last) none = Softmax (rows) whole = Mul (x, none) "
        "logits = Identity (whole)",
    ],
)
def test_numbers_that_are_undefined_do_not_vanish(body):
    assert not is_equal("logits = Identity (x)", body)
    assert is_equal(body, body)


def test_softmax_depends_on_undefined_terms():
    softmax = "log = Log (y) row = ReduceSum (log, last) moved = Add (x, row) logits = Softmax ({})"
    assert not is_equal(softmax.format("x"), softmax.format("moved"))
    assert is_equal(softmax.format("x"), softmax.replace("Log", "Exp").format("moved"))


def test_defined_numbers_vanish():
    norm = "square = Mul (y, y) mean = ReduceMean (square, last) more = Exp (mean) root = Sqrt (more)"
    assert is_equal(
        "logits = Identity (x)", f"{norm} part = Div (y, root) none = Mul (part, zero) logits = Add (x, none)"
    )


LOG = "log = Log (y) "


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("is = Less (log, zero)", "no = GreaterOrEqual (log, zero) is = Not (no)"),
        ("is = LessOrEqual (log, zero)", "no = Greater (log, zero) is = Not (no)"),
        ("is = Equal (log, zero)", "lo = Less (log, zero) hi = Greater (log, zero) any = Or (lo, hi) is = Not (any)"),
        ("is = Greater (log, zero)", "most = Max (log, zero) is = Equal (most, log)"),
    ],
)
def test_comparisons_with_undefined_numbers_have_no_opposite(one, other):
    result = "logits = Where (is, x, zero)"
    assert not is_equal(f"{LOG} {one} {result}", f"{LOG} {other} {result}")
    assert is_equal(f"{LOG} {one} {result}", f"{LOG} {one} {result}")


def test_comparisons_with_defined_numbers_have_an_opposite():
    norm = (
        "square = Mul (y, y) mean = ReduceMean (square, last) more = Exp (mean) root = Sqrt (more) log = Div (x, root)"
    )
    less, opposite = "is = Less (log, zero)", "no = GreaterOrEqual (log, zero) is = Not (no)"
    result = "logits = Where (is, x, zero)"
    assert is_equal(f"{norm} {less} {result}", f"{norm} {opposite} {result}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("logits = Max (log, zero)", "is = GreaterOrEqual (log, zero) logits = Where (is, log, zero)"),
        ("logits = Identity (log)", "is = GreaterOrEqual (log, lowest) logits = Where (is, log, lowest)"),
    ],
)
def test_choices_by_undefined_numbers_are_no_maxima(one, other):
    assert not is_equal(LOG + one, LOG + other)


@pytest.mark.parametrize(
    "body",
    [
        "none = Mul (zero, infinity) logits = Add (x, none)",
        "is = Less (y, zero) bit = Cast <to = 1> (is) low = Mul (bit, infinity) none = Mul (low, zero) "
        "logits = Add (x, none)",
        "more = Mul (y, infinity) logits = Add (x, more)",
        "more = Add (y, infinity) logits = Softmax (more)",
        "is = Less (y, zero) low = Where (is, infinity, y) none = Mul (low, zero) logits = Add (x, none)",
    ],
)
def test_infinite_constants_do_not_vanish(body):
    plain = "logits = Softmax (y)" if "Softmax" in body else "logits = Identity (x)"
    assert not is_equal(plain, body)
    assert is_equal(body, body)


def test_the_lowest_number_is_above_infinity():
    choice = "is = Less (y, zero) low = Where (is, infinity, y) "
    assert not is_equal(choice + "logits = Max (low, lowest)", choice + "logits = Identity (low)")
    assert is_equal("logits = Max (x, lowest)", "logits = Identity (x)")


#: A layer with a cache: attention to all keys, without a mask.
_LAYER = """<ir_version: 9, opset_import: ["": 18]>
    layer (int64[batch, length] input_ids, float[batch, 2, past, 4] "past_key_values.0.key",
           float[batch, 2, past, 4] "past_key_values.0.value")
        => (float[batch, length, 8] logits, float[batch, 2, total, 4] "present.0.key",
            float[batch, 2, total, 4] "present.0.value") {{
        depth = Constant <value_int = 8> () values = Constant <value_floats = [0.0, 1.0]> ()
        states = OneHot (input_ids, depth, values) heads = Constant <value_ints = [0, 0, 2, 4]> ()
        apart = Reshape (states, heads) new = Transpose <perm = [0, 2, 1, 3]> (apart)
        "present.0.key" = Concat <axis = 2> ("past_key_values.0.key", new)
        "present.0.value" = Concat <axis = 2> ("past_key_values.0.value", new)
        turned = Transpose <perm = [0, 1, 3, 2]> ("present.0.key") scores = MatMul (new, turned)
        shares = Softmax (scores) mixed = MatMul (shares, "present.0.value")
        rows = Transpose <perm = [0, 2, 1, 3]> (mixed) whole = Constant <value_ints = [0, 0, 8]> ()
        hidden = Reshape (rows, whole) zero = Constant <value_float = 0.0> ()
        {body} logits = Add (hidden, none)
    }}"""

_SIZE = 'size = Shape <start = 2, end = 3> ("{}") count = Cast <to = 1> (size)'
_PAST, _TOTAL = _SIZE.format("past_key_values.0.key"), _SIZE.format("present.0.key")


def layer(body: str) -> OnnxModel:
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(_LAYER.format(body=body))))


@pytest.mark.parametrize(
    ("body", "vanishes"),
    [
        (_PAST + "none = Div (zero, count)", False),
        (_PAST + "share = Div (count, count) none = Sub (share, share)", False),
        ('all = Exp ("past_key_values.0.key") sum = ReduceSum <keepdims = 0> (all) none = Div (zero, sum)', False),
        ('mean = ReduceMean <keepdims = 0> ("past_key_values.0.key") none = Mul (zero, mean)', False),
        ('most = ReduceMax <keepdims = 0> ("past_key_values.0.key") none = Mul (zero, most)', False),
        (_TOTAL + "none = Div (zero, count)", True),
    ],
)
def test_the_past_may_be_empty(body, vanishes):
    models = layer("none = Identity (zero)"), layer(body)
    weights = WeightDigests(models)
    unequal = Comparer(models, weights, Question(("logits",)), unpadded=False).unequal()
    assert (not unequal) == vanishes
