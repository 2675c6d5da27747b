"""Layers of equal structure are compared once, and a change of one layer is not missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import pytest
from onnx import numpy_helper
from support.loaded import converted, exported
from verify.layers.faults_of_layers import edited, layer_of, scale_feed_forward

from graphpass import PassManager, parse
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.parts import Plan, plan
from graphpass.verify.structure.comparer import Comparer
from graphpass.verify.structure.equal_layers import EqualLayers
from graphpass.verify.structure.proof import compare_structures
from graphpass.verify.structure.question import Question
from graphpass.verify.structure.weights import WeightDigests

if TYPE_CHECKING:
    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Rewriter

#: 12 layers, 10 of which have the same weights.
DEEP = "llama_12l/onnx"


def is_proven(reference: Model, candidate: Model) -> bool:
    models = reference, candidate
    layers = plan(*models)
    assert isinstance(layers, Plan)
    return not Comparer(models, WeightDigests(models), Question(("logits",)), layers, unpadded=True).unequal()


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.slow), "ort"])
def test_equal_layers_are_compared_once(target, monkeypatch):
    compared = []
    prove = EqualLayers.prove

    def counted(self, pair, name, compare):
        return prove(self, pair, name, lambda: compared.append(pair) or compare())

    monkeypatch.setattr(EqualLayers, "prove", counted)
    reference = exported(DEEP)
    assert is_proven(reference, converted(reference, target).model)
    pairs = {pair.parts for pair in compared}
    # The embedding, the attention and feed-forward network of two kinds of layers.
    assert 3 <= len(pairs) <= 5


def norms(model: Model) -> list[Node]:
    """Return the products with the weights of norms, one of each layer."""
    return [
        node
        for node in model.graph.of_op("Multiply")
        if "input_layernorm" in node.name and any(_is_weight(model, node, port) for port in (0, 1))
    ]


def _is_weight(model: Model, node: Node, port: int) -> bool:
    return model.graph.producer(node.source(port)).op == "Constant" and node.source(port).rank == 1


def exchange_weights(rewriter: Rewriter, model: Model) -> None:
    own, other = (
        next(node for node in layer_of(model, "MatMul", layer) if "q_proj" in node.name).source(1) for layer in (5, 6)
    )
    rewriter.redirect_uses(own, rewriter.native(other))


def read_past_of_next_layer(rewriter: Rewriter, model: Model) -> None:
    reads = model.graph.reads
    own, other = (reads[f"past_key_values.{layer}.key"].outputs[0] for layer in (5, 6))
    rewriter.redirect_uses(own, rewriter.native(other))


def write_present_of_next_layer(rewriter: Rewriter, model: Model) -> None:
    own, other = (model.graph.writes[f"present.{layer}.key"] for layer in (5, 6))
    rewriter.redirect(own, 0, other.source())


def skip_a_layer(rewriter: Rewriter, model: Model) -> None:
    sums = [node for node in model.graph.of_op("Add") if "layers.5/Add" in node.name]
    rewriter.redirect_uses(sums[-1].outputs[0], rewriter.native(sums[-1].source(0)))


def norm_like_next_layer(rewriter: Rewriter, model: Model) -> None:
    own, other = norms(model)[5:7]
    port = next(port for port in (0, 1) if _is_weight(model, own, port))
    rewriter.redirect(own, port, rewriter.native(other.source(port)))


@pytest.mark.parametrize(
    "fault",
    [
        exchange_weights,
        scale_feed_forward,
        read_past_of_next_layer,
        write_present_of_next_layer,
        skip_a_layer,
        norm_like_next_layer,
    ],
)
def test_a_change_of_one_layer_is_not_proven(fault):
    reference = exported(DEEP)
    assert not is_proven(reference, edited(reference, fault))


def with_norms(model: Model, values: list[float]) -> Model:
    """Return the model with equal weights of each layer's norm."""

    def edit(rewriter: Rewriter, copy: Model) -> None:
        for node, value in zip(norms(copy), values, strict=True):
            port = next(port for port in (0, 1) if _is_weight(copy, node, port))
            size = node.source(port).shape
            weight = rewriter.constant(numpy.full(size, value, numpy.float32), "f32", f"{node.name}/weight")
            rewriter.redirect(node, port, weight)

    return edited(model, edit)


def without_norms(rewriter: Rewriter, model: Model) -> None:
    for node in norms(model):
        port = next(port for port in (0, 1) if not _is_weight(model, node, port))
        rewriter.redirect_uses(node.outputs[0], rewriter.native(node.source(port)))


@pytest.mark.parametrize(("last", "is_equal"), [(1.0, True), (2.0, False)])
def test_weights_of_1_are_not_those_of_another_layer(last, is_equal):
    reference = with_norms(exported(DEEP), [1.0] * 11 + [last])
    assert is_proven(reference, edited(reference, without_norms)) == is_equal


def scaled_by(factors: list[numpy.ndarray]) -> object:
    """Return an edit that multiplies a product of each layer by the first element of a constant."""

    def edit(rewriter: Rewriter, model: Model) -> None:
        for layer, factor in enumerate(factors):
            node = next(node for node in layer_of(model, "MatMul", layer) if "o_proj" in node.name)
            constant = rewriter.constant(factor, "f32", f"factor.{layer}")
            place = rewriter.constant(0, "i64", f"place.{layer}")
            first = rewriter.op("Gather", constant, place, axis=0, name=f"first.{layer}")
            scaled = rewriter.op("Multiply", node.outputs[0], first, name=f"scaled.{layer}")
            rewriter.redirect_uses(node.outputs[0], scaled)

    return edit


@pytest.mark.parametrize(("last", "is_equal"), [(2.0, True), (3.0, False)])
def test_an_element_of_a_constant_is_not_that_of_another_layer(last, is_equal):
    generator = numpy.random.default_rng(0)
    vectors = generator.standard_normal((12, 128)).astype(numpy.float32)
    vectors[:, 0] = [2.0] * 11 + [last]
    numbers = [numpy.full(128, 2.0, numpy.float32)] * 12
    reference, candidate = (edited(exported(DEEP), scaled_by(list(side))) for side in (vectors, numbers))
    assert is_proven(reference, candidate) == is_equal


def multiplied(vectors: numpy.ndarray, factor: float) -> object:
    """Return an edit that multiplies a product of each layer by a vector times a number."""

    def edit(rewriter: Rewriter, model: Model) -> None:
        for layer, vector in enumerate(vectors):
            node = next(node for node in layer_of(model, "MatMul", layer) if "o_proj" in node.name)
            constants = {f"v.{layer}": vector, f"f.{layer}": factor}
            numbers = (rewriter.constant(content, "f32", name) for name, content in constants.items())
            both = rewriter.op("Multiply", *numbers, name=f"both.{layer}")
            scaled = rewriter.op("Multiply", node.outputs[0], both, name=f"scaled.{layer}")
            rewriter.redirect_uses(node.outputs[0], scaled)

    return edit


@pytest.mark.parametrize("last", [1.0, 1.5, -1.0])
def test_a_multiple_of_a_vector_is_not_that_of_another_layer(last):
    """The candidate has each vector times 2; in the last layer times another number."""
    vectors = numpy.random.default_rng(0).standard_normal((12, 32)).astype(numpy.float32)
    own = 2 * vectors
    own[-1] *= last
    reference, candidate = (
        edited(exported(DEEP), multiplied(*side)) for side in ((vectors, numpy.float32(2)), (own, numpy.float32(1)))
    )
    assert is_proven(reference, candidate) == (last == 1)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [None, 0, 6, 11])
def test_bytes_of_one_layer_are_compared_with_integers(layer):
    """The reference reads bytes, and the result integers of 4 bits."""
    reference = PassManager(parse("quantize-weights")).run(exported(DEEP)).model
    made = converted(reference, "cpu").model
    other = reference.clone()
    assert isinstance(other, OnnxModel)
    if layer is not None:
        products = [node for node in reference.graph.of_op("MatMulNBits") if f"layers.{layer}/" in node.name]
        (tensor,) = (entry for entry in other.proto.graph.initializer if entry.name == products[0].source(1).name)
        array = numpy_helper.to_array(tensor).copy()
        array.reshape(-1)[-1] ^= 16
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    assert is_proven(OnnxModel(other.proto, reference.path), made) == (layer is None)


def test_a_table_of_angles_is_not_that_of_another_layer():
    """The reference computes angles, which are not weights: a table is equal by its elements."""
    reference = exported("gemma2/onnx")
    mutant = converted(reference, "ort").model.clone()
    assert isinstance(mutant, OnnxModel)
    *_, last = mutant.graph.of_op("GroupQueryAttention")
    table = mutant.graph.constant(last.source(7)).copy()
    table[[40, 41]] = table[[41, 40]]
    mutant.proto.graph.initializer.append(numpy_helper.from_array(table, "exchanged rows"))
    last.native.input[7] = "exchanged rows"
    mutant.mark_edited()
    found = compare_structures(reference, mutant)
    assert found is not None
    assert not found.is_complete
