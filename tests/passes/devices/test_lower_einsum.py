"""`lower-einsum`: products of matrices give what Einsum does, for any equation of two operands."""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

import graphpass
from graphpass.dialects.onnx.model import OnnxModel

SIZES = {label: 2 + place for place, label in enumerate("bchlmnps")}


def model(equation: str, open_axes: str = "") -> OnnxModel:
    """A model of one Einsum; sizes of ``open_axes`` are not fixed."""
    operands = equation.partition("->")[0].split(",")
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT, [label if label in open_axes else SIZES[label] for label in axes]
        )
        for name, axes in zip("xyz", operands, strict=False)
    ]
    node = helper.make_node("Einsum", [each.name for each in inputs], ["out"], name="product", equation=equation)
    result = [f"axis_{label}" for label in equation.partition("->")[2]]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, result)])
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def lowered(source: OnnxModel) -> graphpass.Model:
    return graphpass.PassManager(graphpass.parse("lower-einsum")).run(source).model


def same(equation: str, open_axes: str = "") -> None:
    random = numpy.random.default_rng(0)
    operands = equation.partition("->")[0].split(",")
    feeds = {
        name: random.standard_normal([SIZES[label] for label in axes]).astype(numpy.float32)
        for name, axes in zip("xyz", operands, strict=False)
    }
    result = lowered(model(equation, open_axes))
    assert not any(result.graph.of_op("Einsum"))
    assert isinstance(result, OnnxModel)
    onnx.checker.check_model(result.proto)
    (found,) = onnxruntime.InferenceSession(result.proto.SerializeToString()).run(None, feeds)
    numpy.testing.assert_allclose(found, numpy.einsum(equation, *feeds.values()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "open_axes"),
    [
        ("bclsh,bcshp->bclhp", "bcl"),
        ("bclhn,bcshn->bclsh", "bls"),
        ("bhcs,bshpn->bchpn", "bcs"),
        ("bclhn,bclhp->bchpn", "bc"),
        ("bl,lm->bm", ""),
        ("l,m->lm", "l"),
        ("bl,bl->b", "b"),
    ],
)
def test_products_of_models_compute_the_same(equation: str, open_axes: str) -> None:
    same(equation, open_axes)


@st.composite
def equations(draw: st.DrawFn) -> str:
    """Equations whose labels stand once in an operand; those of one operand are in the result."""
    kinds = {label: draw(st.sampled_from(["batch", "summed", "left", "right", "none"])) for label in "bchlm"}
    labels = {kind: [label for label, own in kinds.items() if own == kind] for kind in kinds.values()}
    left, right, result = (
        [label for kind in names for label in labels.get(kind, [])]
        for names in (("batch", "summed", "left"), ("batch", "summed", "right"), ("batch", "left", "right"))
    )
    orders = ("".join(draw(st.permutations(axes))) for axes in (left or ["p"], right or ["s"], result))
    first, second, last = orders
    return f"{first},{second}->{last}" + ("" if left else "p") + ("" if right else "s")


@given(equations())
def test_any_product_computes_the_same(equation: str) -> None:
    same(equation)


@pytest.mark.parametrize("equation", ["bl->b", "bll,lm->bm", "bl,lm,mn->bn", "bl,m->b"])
def test_an_einsum_without_a_product_stays(equation: str) -> None:
    assert any(lowered(model(equation)).graph.of_op("Einsum"))


def test_two_open_sizes_stay() -> None:
    assert any(lowered(model("bcl,lm->bcm", "bcl")).graph.of_op("Einsum"))
