"""Elements of elementwise operators equal those that runtimes compute; what may overflow is unknown."""

import numpy
import pytest
from support.elements import evaluated

INTEGERS, REALS = [-7, -2, 0, 1, 2, 7], [-2.5, -1.0, 0.0, 0.25, 1.0, 3.5]
COUNTS = "%all = Range(0, 6, 1)\n"


@pytest.mark.parametrize(
    "text",
    [
        *(f"%y = {op}(%x)" for op in ("Abs", "Negative", "Relu", "Sign", "Ceiling", "Floor", "Cos", "Sin", "Tanh")),
        *(f"%y = {op}(%x)" for op in ("Exp", "Sigmoid", "SoftPlus", "Erf")),
        *(f"%y = {op}(%x, 0.25)" for op in ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum")),
        *(f"%y = {op}(%x, 0.25)" for op in ("Equal", "Less", "LessEqual", "Greater", "GreaterEqual")),
        "%y = Power(%x, 2.0)",
        "%y = Power(2.0, %x)",
        "%y = Clip(%x, -1.0, 0.5)",
        "%y = Clip(%x, -1.0)",
        "%c = Greater(%x, 0.0)\n%d = Less(%x, 2.0)\n%y = LogicalAnd(%c, %d)",
        "%c = Greater(%x, 0.0)\n%d = Less(%x, 2.0)\n%y = LogicalXor(%c, %d)",
        "%c = Greater(%x, 0.0)\n%y = LogicalNot(%c)",
        "%c = Greater(%x, 0.0)\n%y = Select(%c, %x, -1.0)",
        "%c = Greater(%x, 0.0)\n%y = Convert(%c) {to=i64}",
        "%y = Convert(%x) {to=boolean}",
        "%y = Convert(%x) {to=f16}",
    ],
)
def test_real_numbers(text):
    found, expected = evaluated(f"%x = Parameter : f32[6]\n{text}", x=numpy.array(REALS, numpy.float32))
    numpy.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "text",
    ["%e = Exp(800.0)", "%e = Log(0.0)", "%e = Power(0.0, -2.0)", "%e = Power(-8.0, 0.5)", "%e = Power(1e30, 300.0)"],
)
@pytest.mark.filterwarnings("ignore:.*encountered in")
def test_functions_of_constants_without_a_finite_value(text):
    found, expected = evaluated(f"%x = Parameter : f32[6]\n{text}\n%y = Add(%x, %e)", x=numpy.float32(REALS))
    numpy.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "text",
    [
        *(f"{COUNTS}%y = {op}(%all, 3)" for op in ("Add", "Subtract", "Multiply", "Divide", "Mod", "Minimum")),
        f"{COUNTS}%y = Power(%all, 2)",
        f"{COUNTS}%y = Negative(%all)",
        f"{COUNTS}%small = Convert(%all) {{to=i8}}\n%y = Convert(%small) {{to=i64}}",
        "%y = Maximum(%x, 1)",
        "%y = Abs(%x)",
    ],
)
def test_integers(text):
    text = text if "%x" in text else f"{text.replace('%y', '%z')}\n%y = Add(%z, %zero)"
    setup = "%x = Parameter : i64[6]\n%zero = Multiply(%x, 0)\n"
    numpy.testing.assert_array_equal(*evaluated(setup + text, x=INTEGERS))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%y = Divide(%x, 2)", "divides integers that may be negative"),
        ("%y = Mod(%x, 2)", "negative numbers differently"),
        ("%y = Power(%x, 3)", "exponent 2 only"),
        ("%y = Convert(%x) {to=i8}", "out of the range of i8"),
        ("%y = Convert(%x) {to=u64}", "out of the range of u64"),
        (f"{COUNTS}%y = Multiply(%all, 4611686018427387904)", "out of the range of i64"),
    ],
)
def test_numbers_that_may_overflow_or_be_negative_are_unknown(text, reason):
    with pytest.raises(LookupError, match=reason):
        evaluated(f"%x = Parameter : i64[6]\n%zero = Multiply(%x, 0)\n{text}", x=INTEGERS)


def test_positions_times_a_mask_do_not_overflow():
    """BERT's position ids: the running sum of a mask, times the mask."""
    text = "%c = Greater(%x, 0)\n%mask = Convert(%c) {to=i32}\n%sum = onnx.CumSum(%mask, 0)\n%y = Multiply(%sum, %mask)"
    numpy.testing.assert_array_equal(*evaluated(f"%x = Parameter : i64[6]\n{text}", x=INTEGERS))


def test_the_lowest_number_bounds_no_finite_number():
    text = "%x = Parameter : f32[6]\n%y = Maximum(%x, -3.4028234663852886e38)"
    numpy.testing.assert_array_equal(*evaluated(text, x=numpy.array(REALS, numpy.float32)))


@pytest.mark.parametrize(("rounding", "expected"), [("floor", -4), ("trunc", None)])
def test_divisions_of_negative_integers_depend_on_the_dialect(rounding, expected):
    text = "%x = Parameter : i64[1]\n%y = Divide(%x, 2) {m_pythondiv=" + str(rounding == "floor").lower() + "}"
    if expected is None:
        with pytest.raises(LookupError, match="may be negative"):
            evaluated(text, "openvino", x=[-7])
    else:
        assert evaluated(text, "openvino", x=[-7])[0].tolist() == [expected]
