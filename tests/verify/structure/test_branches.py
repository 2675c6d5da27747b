"""An If is a choice between the results of its branches."""

from __future__ import annotations

import pytest
from verify.structure.comparing import is_equal, model_of_function, read_by_openvino

INPUTS = "float[rows, columns, 4] x, float[rows, columns, 4] z"
CONDITION = """
    shape = Shape (x)
    count = Gather (shape, one)
    limit = Constant <value = int64[1] {8}> ()
    longer = Greater (count, limit)
    is_long = Squeeze (longer)"""
END = "y = Identity (h)"
TABLES = """
    large = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
    small = Constant <value = float[2] {5.0, 7.0}> ()"""


def chosen(then: str, otherwise: str, sizes: tuple[str, str] = ("rows, columns, 4",) * 2) -> str:
    """Return an If whose branches compute ``a`` and ``b``."""
    return f"""{CONDITION}
    h = If (is_long) <
        then_branch = first () => (float[{sizes[0]}] a) {{ {then} }},
        else_branch = second () => (float[{sizes[1]}] b) {{ {otherwise} }}>"""


def model(body: str):
    return model_of_function(body, INPUTS)


IF = chosen("a = Neg (x)", "e = Exp (x) b = Mul (e, e)") + END


@pytest.mark.parametrize("read", [lambda model: model, read_by_openvino], ids=["onnx", "openvino"])
def test_the_condition_selects_a_branch(read):
    where = CONDITION + "t = Neg (x) e = Exp (x) f = Mul (e, e) y = Where (is_long, t, f)"
    swapped = CONDITION + "t = Neg (x) e = Exp (x) f = Mul (e, e) y = Where (is_long, f, t)"
    assert is_equal(read(model(IF)), model(where))
    assert is_equal(model(where), read(model(IF)))
    assert not is_equal(read(model(IF)), model(swapped))


def test_branches_that_differ():
    assert is_equal(model(IF), model(IF))
    assert not is_equal(model(IF), model(IF.replace("e = Exp (x)", "e = Sin (x)")))
    assert not is_equal(model(IF), model(IF.replace("{8}", "{9}")))
    assert not is_equal(model(IF), model(IF.replace("Greater (count, limit)", "Greater (limit, count)")))


def test_branches_of_other_branches():
    inner = (
        "c = Less (x, z) l = ReduceMax <keepdims = 0> (x) k = Cast <to = 9> (l) "
        "a = If (k) <then_branch = third () => (float[rows, columns, 4] s) { s = Neg (x) },"
        " else_branch = fourth () => (float[rows, columns, 4] t) { t = Add (x, z) }>"
    )
    nested = chosen(inner, "b = Exp (x)") + END
    apart = (
        CONDITION + "l = ReduceMax <keepdims = 0> (x) k = Cast <to = 9> (l) s = Neg (x) t = Add (x, z) "
        "a = Where (k, s, t) b = Exp (x) y = Where (is_long, a, b)"
    )
    assert is_equal(model(nested), model(apart))
    assert not is_equal(model(nested), model(apart.replace("Where (k, s, t)", "Where (k, t, s)")))


def test_tables_of_different_length():
    """As the tables of longrope: the longer one is read after more positions."""
    table = TABLES + chosen("a = Identity (large)", "b = Identity (small)", ("3", "2")) + "g = Gather (h, one)"
    row = TABLES + CONDITION + "s = Gather (large, one) t = Gather (small, one) g = Where (is_long, s, t)"
    ends = " y = Add (x, g)"
    assert is_equal(model(table + ends), model(row + ends))
    assert not is_equal(model(table + ends), model(row.replace("Gather (small, one)", "Gather (small, zero)") + ends))


@pytest.mark.parametrize(
    "first",
    ["f = Add (p, q)", "f = MatMul (p, q)", "t = Constant <value = float[3] {1.0, 2.0, 3.0}> () f = MatMul (p, t)"],
)
def test_sizes_that_only_one_branch_requires(first):
    """The first branch fails unless the sizes ``m`` and ``n`` are equal, or 3; the second runs for any."""
    inputs = "float[rows, columns, 4] x, float[m] p, float[n] q"

    def scaled(second: str):
        body = chosen(f"{first} g = ReduceSum <keepdims = 0> (f) a = Mul (x, g)", f"{second} b = Mul (x, r)") + END
        return model_of_function(body, inputs)

    def size_of(tensor: str):
        # Sizes of tensors outside of branches are known there.
        return f"u = Neg ({tensor}) s = Shape (u) r = Cast <to = 1> (s)"

    assert not is_equal(scaled(size_of("p")), scaled(size_of("q")))
    assert not is_equal(scaled(size_of("p")), scaled("r = Constant <value = float {3.0}> ()"))
