"""Signs of numbers, and numbers that are undefined for some inputs, which no rewriting may hide."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import Comparer
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
        {body}
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def is_equal(*bodies: str) -> bool:
    reference, candidate = map(model_of, bodies)
    weights = WeightDigests((reference, candidate))
    return not Comparer((reference, candidate), weights, ["logits"], unpadded=False).unequal()


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
