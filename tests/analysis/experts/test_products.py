"""Products of an expert with constants: the columns that are read, bias, order of the weight, and refusals."""

import pytest

from graphpass.analysis.experts.products import read_expert
from graphpass.ir.miss import MissError
from graphpass.testing import parse_model

GIVEN = """%rows = Parameter : f32[n, 8]
%number = Parameter : i64[n]
%joined = Constant : f32[8, 12]
%turned = Constant : f32[12, 8]
%bias = Constant : f32[12]
%down = Constant : f32[6, 8]
%first = Constant : f32[4, 8, 6]
%last = Constant : f32[4, 6, 8]
"""
PRODUCT = "%a = MatMul(%rows, %joined)\n"
SPLIT = "%gate, %up = Split(%a, [6, 6]) {axis=-1}\n"
PAIRS = "%gate = Slice(%a, [0], [99], [2]) {axes=[-1]}\n%up = Slice(%a, [1], [99], [2]) {axes=[-1]}\n"
GATED = "%open = Relu(%gate)\n%b = Multiply(%open, %up)\n"
LAST = "%y = MatMul(%b, %down)"
#: The rows of each token's expert, as rows and as columns of a product.
GATHERED = """%w1 = Gather(%first, %number) {axis=0}
%one = Unsqueeze(%rows) {axes=[1]}
%p = MatMul(%one, %w1)
%s = Squeeze(%p) {axes=[1]}
%open = Relu(%s)
%w2 = Gather(%last, %number) {axis=0}
%two = Unsqueeze(%open) {axes=[1]}
%q = MatMul(%two, %w2)
%y = Squeeze(%q) {axes=[1]}"""


def expert_of(text, **options):
    graph = parse_model(f"{GIVEN}{text}\nResult(%y) {{name=result}}").graph
    return read_expert(graph, graph.writes["result"].source(), **options)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (PRODUCT + SPLIT + GATED + LAST, [(0, 6, 1), (6, 12, 1), (0, 8, 1)]),
        (PRODUCT + PAIRS + GATED + LAST, [(0, 12, 2), (1, 12, 2), (0, 8, 1)]),
        (PRODUCT + SPLIT + "%b = Relu(%gate)\n" + LAST, [(0, 6, 1), (0, 8, 1)]),
    ],
)
def test_columns_of_a_joined_product(text, columns):
    products = expert_of(text).products
    assert [product.columns for product in products] == columns
    assert [product.outputs for product in products] == [6] * (len(columns) - 1) + [8]


@pytest.mark.parametrize(
    ("made", "weight", "turned", "bias"),
    [
        (PRODUCT, "joined", False, None),
        ("%t = Transpose(%turned) {order=[1, 0]}\n%a = MatMul(%rows, %t)\n", "turned", True, None),
        ("%p = MatMul(%rows, %joined)\n%a = Add(%p, %bias)\n", "joined", False, "bias"),
        ("%p = MatMul(%rows, %joined)\n%a = Add(%bias, %p)\n", "joined", False, "bias"),
    ],
)
def test_the_stored_weight_and_its_bias(made, weight, turned, bias):
    product = expert_of(made + SPLIT + GATED + LAST).products[0]
    assert (product.weight.name, product.is_turned, product.inputs) == (weight, turned, 8)
    assert (product.bias and product.bias.name) == bias


def test_gathered_weights_state_the_expert_of_each_row():
    expert = expert_of(GATHERED, gathered=True)
    assert (expert.index.name, expert.rows.name) == ("number", "rows")
    assert [product.weight.name for product in expert.products] == ["first", "last"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PRODUCT.replace("%a ", "%p ") + "%a = Add(%p, %p)\n" + SPLIT + GATED + LAST, "product and one constant"),
        ("%a = MatMul(%rows, %joined)\n%b = Slice(%a, [0], [6]) {axes=[0]}\n%y = MatMul(%b, %turned)", "slice of"),
        (PRODUCT + SPLIT + GATED + "%z = MatMul(%b, %down)\n%y = Slice(%z, [4], [8]) {axes=[-1]}", "only some columns"),
        (PRODUCT + SPLIT + GATED.replace("Relu", "Softmax") + LAST, "Softmax is not a product with weights"),
        (PRODUCT + SPLIT + GATED.replace("%up", "%c") + LAST, "Concat is not a product with weights"),
        ("%t = Tanh(%rows)\n%c = MatMul(%t, %joined)\n%a = MatMul(%rows, %joined)\n%o = Multiply(%a, %c)\n"
         "%y = MatMul(%o, %turned)", "read different rows"),
    ],
)  # fmt: skip
def test_other_computations_are_refused(text, reason):
    more = "%c = Concat(%gate, %up) {axis=0}\n" if "%c)" in text and "%c =" not in text else ""
    with pytest.raises(MissError, match=reason):
        expert_of(text.replace("%open", more + "%open", 1))


def test_weights_gathered_by_two_indices_are_refused():
    text = "%other = Parameter : i64[n]\n" + GATHERED.replace("(%last, %number)", "(%last, %other)")
    with pytest.raises(MissError, match="not all gathered by one index"):
        expert_of(text, gathered=True)
