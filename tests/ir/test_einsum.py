"""Equations of Einsum."""

import pytest

from graphpass.ir.einsum import EinsumProduct, axis_order, labels
from graphpass.testing import parse_model


@pytest.mark.parametrize(
    ("equation", "axes"),
    [
        ("bhqd, bhkd -> bhqk", (["bhqd", "bhkd"], "bhqk")),
        ("ba,ac", (["ba", "ac"], "bc")),
        ("ii->", (["ii"], "")),
        ("...d,d->...", None),
    ],
)
def test_equations_are_read(equation, axes):
    assert labels(equation) == axes


def product_of(equation, left="2, 3, n, 4", right="2, 3, m, 4"):
    text = f"""
%q = Parameter : f32[{left}]
%k = Parameter : f32[{right}]
%y = Einsum(%q, %k) {{equation="{equation}"}}
Result(%y) {{name=y}}"""
    (node,) = parse_model(text).graph.of_op("Einsum")
    return EinsumProduct.of(node)


def test_a_product_has_batch_summed_and_own_axes():
    product = product_of("bhqd,bhkd->bhqk")
    assert (product.batch, product.summed, product.own(0), product.own(1)) == ("bh", "d", "q", "k")
    assert (product.joined("bh"), product.joined("hq"), product.joined("")) == (6, None, 1)
    assert axis_order("bhqk", "qbkh") == [2, 0, 3, 1]


def test_a_size_is_that_of_the_operand_that_states_it():
    assert product_of("bhqd,bhqd->bhq", right="2, 3, 7, 4").sizes["q"] == 7
    assert product_of("bhqd,bhqd->bhq", left="2, 3, 7, 4").sizes["q"] == 7


@pytest.mark.parametrize(
    ("equation", "is_product"),
    [("bhqd,bhkd->bqk", True), ("bhqd,bhkd->bhk", False), ("bhqq,bhkd->bhqkd", False)],
    ids=["two axes summed", "an axis of one operand summed", "repeated"],
)
def test_only_matrix_products_are_products(equation, is_product):
    assert (product_of(equation) is not None) == is_product
