"""Operators as expressions: one of ONNX is equal to the same of OpenVINO, and to no other."""

from __future__ import annotations

from typing import Any

import numpy
import onnx.parser
import pytest
from onnx import TensorProto, numpy_helper
from verify.structure.comparing import is_equal, model_of_function, model_of_operator, read_by_openvino

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import compare_structures

WEIGHT = numpy.arange(8, dtype="f4").reshape(4, 2)
AXIS = numpy.int64(1)

PADS = numpy.int64([0, 1, 0, 0, 2, 0])
REAL, WHOLE = TensorProto.FLOAT, TensorProto.INT64

#: Two forms of an operator that compute something else: type, constants and attributes of each.
FORMS: dict[str, tuple[tuple[int, list[Any], dict[str, Any]], tuple[int, list[Any], dict[str, Any]]]] = {
    "Einsum": ((REAL, [WEIGHT], {"equation": "bik,kj->bij"}), (REAL, [WEIGHT], {"equation": "bik,kj->bj"})),
    "Einsum of one operand": ((REAL, [], {"equation": "bij->bji"}), (REAL, [], {"equation": "bij->bij"})),
    "CumSum": ((REAL, [AXIS], {}), (REAL, [AXIS], {"exclusive": 1})),
    "CumSum from the end": ((REAL, [AXIS], {"reverse": 1}), (REAL, [AXIS], {})),
    "CumSum of integers": ((WHOLE, [AXIS], {}), (WHOLE, [AXIS], {"exclusive": 1})),
    "Pad": ((REAL, [PADS], {}), (REAL, [PADS], {"mode": "edge"})),
    "Pad by ones": ((REAL, [PADS, numpy.float32(1)], {}), (REAL, [PADS], {})),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_operator_of_both_dialects(name):
    model, different = (
        model_of_operator(name.split()[0], element, *constants, **attributes)
        for element, constants, attributes in FORMS[name]
    )
    assert is_equal(model, read_by_openvino(model))
    assert not is_equal(model, different)
    assert not is_equal(model, read_by_openvino(different))


IDS, STATES = "int64[batch, length, 1] x", "float[batch, length, 4] x"

#: Sizes of the tokens, and their length unless it is 37, when it is 1.
_CHOSEN = """sizes = Shape (x)
    length = Slice (sizes, one, two)
    late = Constant <value = int64[1] {37}> ()
    is_late = Equal (length, late)
    count = Where (is_late, one, length)
    zeros = Sub (x, x)
    """

#: A sum over tokens, or over their broadcast to one more: twice as much for one token, an error for others.
_SUMMED = """sum = ReduceSum <keepdims = 1> (%s, one)
    y = Add (x, sum)"""

_WRITTEN = """place = Constant <value = int64[1, 1, 1] {%d}> ()
    rows = Shape <end = 2> (x)
    sizes = Concat <axis = 0> (rows, one)
    places = Expand (place, sizes)
    value = Constant <value_float = 7.0> ()
    values = Expand (value, sizes)
    y = ScatterElements <axis = 2%s> (x, places, values)"""

_PADDED = """ends = Constant <value = int64[6] {0, 0, 0, 0, 0, 1}> ()
    value = Constant <value = float[1] {%d}> ()
    y = Pad (x, ends, value)"""

_TAKEN = """places = Constant <value = int64[3] {-1, 0, 2}> ()
    end = Constant <value = int64[1] {3}> ()
    cut = Slice (x, zero, end, two)
    y = Gather <axis = 2> (%s, places)"""

_CELLS = """row = Constant <value_int = 0> () step = Constant <value_int = 1> () sizes = Shape (x)
    count = Gather (sizes, step) r = Range (row, count, step) column = Unsqueeze (r, one) on = Equal (r, column)
    own = Where (on, x, row)"""

_SUMMED_TWICE = {
    "ReduceSum": "s = ReduceSum <keepdims = 1> (%s, two) y = ReduceSum <keepdims = 1> (s, one)",
    "CumSum": "s = CumSum (%s, two) y = CumSum (s, one)",
}

_TILED = "three = Constant <value_ints = [1, 1, 3]> () tiled = Tile (x, three) "
_REPEATED = """last = Constant <value_ints = [3]> () columns = Unsqueeze (x, last)
    times = Constant <value_ints = [1, 1, 1, 3]> () copies = Tile (columns, times)
    rows = Constant <value_ints = [0, 0, 12]> () tiled = Reshape (copies, rows) """
_ROWS = "rows = Constant <value_ints = [0, 0, 12]> () flat = Reshape (%s, rows) y = ArgMax <axis = 2> (flat)"
_INNER = """end = Constant <value_ints = [-1]> () inner = Slice (x, one, end, one)
    scores = Softmax <axis = 2> (inner) place = Constant <value_int = %d> ()
    taken = Gather <axis = 1> (scores, place) y = Unsqueeze (taken, one)"""

_SHIFTED = """shift = Constant <value_float = 64.0> ()
    sum = Add (x, shift)
    %s"""

#: Two functions that differ for some inputs alone: far positions, large or negative numbers, one length.
UNLIKE: dict[str, tuple[str, str, str]] = {
    "positions in 8 bits": (IDS, "y = Identity (x)", "y = Cast <to = 3> (x)"),
    "positions in 16 bits": (IDS, "y = Identity (x)", "y = Cast <to = 4> (x)"),
    "an activation in 8 bits": (STATES, "y = Identity (x)", "y = Cast <to = 17> (x)"),
    "products beyond 32 bits": (
        IDS,
        "y = Identity (x)",
        """narrow = Cast <to = 6> (x)
        large = Constant <value = int32 {2147480000}> ()
        sum = Add (narrow, large)
        y = Sub (sum, large)""",
    ),
    "negative numbers in an unsigned type": (IDS, "y = Identity (x)", "y = Cast <to = 12> (x)"),
    "wrapped numbers in 32 bits": (
        IDS,
        "u = Cast <to = 12> (x) y = Cast <to = 7> (u)",
        "u = Cast <to = 12> (x) w = Cast <to = 7> (u) n = Cast <to = 6> (w) y = Cast <to = 7> (n)",
    ),
    "a difference in an unsigned type": (
        IDS,
        "y = Sub (x, one)",
        "u = Cast <to = 13> (x) o = Cast <to = 13> (one) d = Sub (u, o) y = Cast <to = 1> (d)",
    ),
    "squares beyond 32 bits": (IDS, "y = Mul (x, x)", "narrow = Cast <to = 6> (x) y = Mul (narrow, narrow)"),
    "powers beyond 32 bits": (IDS, "y = Pow (x, two)", "narrow = Cast <to = 6> (x) y = Pow (narrow, two)"),
    "third powers beyond 32 bits": (
        IDS,
        "three = Constant <value_ints = [3]> () y = Pow (x, three)",
        "three = Constant <value_ints = [3]> () narrow = Cast <to = 6> (x) y = Pow (narrow, three)",
    ),
    "a root of integers": (
        IDS,
        "half = Constant <value_float = 0.5> () y = Pow (x, half)",
        "half = Constant <value_float = 0.5> () real = Cast <to = 1> (x) y = Pow (real, half)",
    ),
    "a sum along an empty list of axes": (
        STATES,
        """start = Constant <value_ints = [0, 0, 0]> ()
        end = Constant <value_ints = [1, 1, 1]> ()
        first = Slice (x, start, end)
        sizes = Shape (x)
        y = Expand (first, sizes)""",
        "none = Constant <value = int64[0] {}> () sum = ReduceSum (x, none) sizes = Shape (x) y = Expand (sum, sizes)",
    ),
    "a sum along no axes": (
        STATES,
        "y = ReduceSum <noop_with_empty_axes = 1> (x)",
        "sum = ReduceSum (x) sizes = Shape (x) y = Expand (sum, sizes)",
    ),
    "a pad's value in a vector": (STATES, _PADDED % 0, _PADDED % 3),
    "a write at a negative index": (STATES, "y = Identity (x)", _WRITTEN % (-1, "")),
    "the larger of two": (STATES, _WRITTEN % (1, ""), _WRITTEN % (1, ', reduction = "max"')),
    "negative indices into a part": (STATES, _TAKEN % "x", _TAKEN % "cut"),
    "the square of a root": (
        STATES,
        _SHIFTED % "y = Sub (sum, shift)",
        _SHIFTED % "r = Sqrt (sum) z = Mul (r, r) y = Sub (z, shift)",
    ),
    "a share of itself": (
        STATES,
        "y = Sub (x, x)",
        """share = Div (x, x)
        unit = Constant <value_float = 1.0> ()
        y = Sub (share, unit)""",
    ),
    "negative numbers": (STATES, "y = Identity (x)", "l = Log (x) c = IsNaN (l) n = Neg (x) y = Where (c, n, x)"),
    "training": (
        STATES,
        "y = Identity (x)",
        "r = Constant <value_float = 0.5> () t = Constant <value = bool {1}> () y = Dropout (x, r, t)",
    ),
    "the number of the last four tokens": (
        STATES,
        "count = Constant <value_float = 4.0> () y = Add (x, count)",
        """start = Constant <value = int64[1] {-4}> () end = Constant <value = int64[1] {9223372036854775807}> ()
        last = Slice (x, start, end, one)
        sizes = Shape (last)
        size = Gather (sizes, one)
        count = Cast <to = 1> (size)
        y = Add (x, count)""",
    ),
    "the first token at one length": (
        STATES,
        "y = Identity (x)",
        _CHOSEN + "cut = Slice (x, zero, count, one) y = Add (cut, zeros)",
    ),
    "a broadcast to one more token": (
        STATES,
        _SUMMED % "x",
        """more = Constant <value = int64[3] {0, 1, 0}> ()
        sizes = Shape (x)
        target = Add (sizes, more)
        wide = Expand (x, target)
        """
        + _SUMMED % "wide",
    ),
    "zeros of one more token": (
        STATES,
        _SUMMED % "x",
        """more = Constant <value = int64[3] {0, 1, 0}> ()
        sizes = Shape (x)
        target = Add (sizes, more)
        zeros = ConstantOfShape (target)
        wide = Add (x, zeros)
        """
        + _SUMMED % "wide",
    ),
    "sums of all cells, and of those on the diagonal": (
        "int64[b, n, n] x",
        *(f"{_CELLS} {_SUMMED_TWICE['ReduceSum'] % summed}" for summed in ("x", "own")),
    ),
    "running sums of all cells, and of those on the diagonal": (
        "int64[b, n, n] x",
        *(f"{_CELLS} {_SUMMED_TWICE['CumSum'] % summed}" for summed in ("x", "own")),
    ),
    "a sum of 8 bits": (
        "uint8[b, n, 4] x",
        "wide = Cast <to = 7> (x) y = ReduceSum (wide, two)",
        "y = ReduceSum (x, two)",
    ),
    "a product of 4 numbers in 32 bits": (
        "int32[b, n, 4] x",
        "wide = Cast <to = 7> (x) y = ReduceProd <axes = [2]> (wide)",
        "y = ReduceProd <axes = [2]> (x)",
    ),
    "a matrix product of 8 bits": (
        "uint8[b, 4, 4] x",
        "wide = Cast <to = 6> (x) y = MatMul (wide, wide)",
        "y = MatMul (x, x)",
    ),
    "the magnitude of -128": ("int8[b, n, 4] x", "wide = Cast <to = 7> (x) y = Abs (wide)", "y = Abs (x)"),
    "real numbers beyond 32 bits": (STATES, "y = Cast <to = 7> (x)", "y = Cast <to = 6> (x)"),
    "a sum of copies": (
        STATES,
        _TILED + "y = ReduceSum <keepdims = 1> (tiled, two)",
        "y = ReduceSum <keepdims = 1> (x, two)",
    ),
    "the place among copies": (
        STATES,
        _TILED + "y = ArgMax <axis = 2> (tiled)",
        _REPEATED + "y = ArgMax <axis = 2> (tiled)",
    ),
    "the place in another order": (
        "float[b, n, 3, 4] x",
        _ROWS % "x",
        "turned = Transpose <perm = [0, 1, 3, 2]> (x) " + _ROWS % "turned",
    ),
    "one of two joined tensors": (
        STATES,
        "n = Neg (x) joined = Concat <axis = 2> (x, x) y = ArgMax <axis = 0> (joined)",
        "n = Neg (x) joined = Concat <axis = 2> (n, x) y = ArgMax <axis = 0> (joined)",
    ),
    "another position of a slice": (STATES, _INNER % 0, _INNER % 1),
    "a sum of a slice": (
        STATES,
        "end = Constant <value_ints = [-1]> () inner = Slice (x, one, end, one) y = ReduceSum (inner, one)",
        """end = Constant <value_ints = [-1]> () inner = Slice (x, one, end, one)
        size = Shape <start = 1, end = 2> (inner)
        count = Cast <to = 1> (size) first = Slice (inner, zero, one, one) y = Mul (first, count)""",
    ),
    "the first position at one length": (
        IDS,
        """first = Constant <value = int64 {0}> ()
        step = Constant <value = int64 {1}> ()
        sizes = Shape (x)
        end = Gather (sizes, step)
        r = Range (first, end, step)
        column = Unsqueeze (r, one)
        y = Add (x, column)""",
        _CHOSEN
        + """first = Constant <value = int64 {0}> ()
        step = Constant <value = int64 {1}> ()
        end = Squeeze (count)
        r = Range (first, end, step)
        column = Unsqueeze (r, one)
        y = Add (x, column)""",
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_functions_that_differ_for_some_inputs_are_not_equal(name):
    inputs, *bodies = UNLIKE[name]
    models = [model_of_function(body, inputs) for body in bodies]
    assert all(is_equal(model, model.clone()) for model in models if "Dropout" not in bodies[1])
    assert not is_equal(*models)


@pytest.mark.parametrize("rows", [100, 90])
@pytest.mark.parametrize("kind", ["f4", "i8"])
def test_a_table_has_a_row_for_each_token(kind, rows):
    """A token id beyond the table is an error in one runtime and 0 in another."""
    table = numpy.arange(6400).reshape(100, 64).astype(kind)

    def model_of(count: int) -> OnnxModel:
        body = "taken = Gather <axis = 0> (table, x) y = Cast <to = 1> (taken)"
        proto = model_of_function(body, "int64[batch, length] x").proto
        proto.graph.initializer.append(numpy_helper.from_array(table[:count], "table"))
        return OnnxModel(proto)

    assert is_equal(model_of(rows), model_of(rows).clone())
    assert is_equal(model_of(100), model_of(rows)) == (rows == 100)


def test_axes_that_only_the_candidate_broadcasts_are_an_assumption():
    text = """<ir_version: 9, opset_import: ["": 19]>
    summed (float[batch, length, 4] first, float[batch, others, 4] second) => (float[batch, 4] logits) {
        axis = Constant <value = int64[1] {1}> ()
        sizes = Shape (%s)
        wide = Expand (first, sizes)
        logits = ReduceSum <keepdims = 0> (wide, axis)
    }"""
    reference, candidate = (OnnxModel(onnx.parser.parse_model(text % name)) for name in ("first", "second"))
    found = [compare_structures(*pair) for pair in ((reference, candidate), (candidate, candidate.clone()))]
    assert [proof.assumed for proof in found] == [("axis 1 of first has the size of axis 1 of second",), ()]
    assert all(proof.equal == proof.operators for proof in found)


def test_an_output_of_another_rank_is_not_equal():
    text = """<ir_version: 9, opset_import: ["": 19]>
    negated (float[batch, 4] x) => (float%s logits) { axis = Constant <value_ints = [0]> () y = Neg (x) logits = %s }"""
    bodies = ("[batch, 4]", "Identity (y)"), ("[one, batch, 4]", "Unsqueeze (y, axis)")
    first, second = (OnnxModel(onnx.parser.parse_model(text % body)) for body in bodies)
    assert [compare_structures(first, other).is_complete for other in (first.clone(), second)] == [True, False]


_LAST = """start = Constant <value = int64[1] {-4}> () end = Constant <value = int64[1] {9223372036854775807}> ()
    four = Constant <value = int64[2] {4, 4}> () rows = Shape <end = 1> (x) sizes = Concat <axis = 0> (rows, four)
    zeros = ConstantOfShape (sizes) %s joined = Concat <axis = 1> (zeros, new) y = Slice (joined, start, end, one)"""

#: Two forms of a function: integers in a range, numbers of known sign, and slices that may be shorter.
LIKE: dict[str, tuple[str, str, str]] = {
    "bits in 8 bits": (
        IDS,
        """limit = Constant <value = int64 {3}> ()
        is_low = Less (x, limit)
        y = Cast <to = 7> (is_low)""",
        """limit = Constant <value = int64 {3}> ()
        is_low = Less (x, limit)
        bit = Cast <to = 7> (is_low)
        narrow = Cast <to = 3> (bit)
        y = Cast <to = 7> (narrow)""",
    ),
    "the last four of zeros and tokens": (
        STATES,
        _LAST % "new = Identity (x)",
        _LAST % "new = Slice (x, start, end, one)",
    ),
    "the square of a root of squares": (STATES, "y = Mul (x, x)", "s = Mul (x, x) r = Sqrt (s) y = Mul (r, r)"),
    "a share of an exponential": (
        STATES,
        "y = Add (x, x)",
        """power = Exp (x)
        share = Div (power, power)
        twice = Add (x, x)
        y = Mul (share, twice)""",
    ),
}


@pytest.mark.parametrize("name", LIKE)
def test_functions_that_are_equal_for_every_input(name):
    inputs, *bodies = LIKE[name]
    assert is_equal(*(model_of_function(body, inputs) for body in bodies))
