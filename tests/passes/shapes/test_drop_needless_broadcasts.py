"""drop-needless-broadcasts: goes where the reader broadcasts to the same shape, stays where it does not."""

from __future__ import annotations

import functools

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import infer, integers
from support.decode import compiled, greedy
from support.models import export, reference
from support.piped import piped

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Changed, Unchanged
from graphpass.io import load
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.shapes.drop_identities import DropIdentities
from graphpass.passes.shapes.drop_needless_broadcasts import DropNeedlessBroadcasts

MODELS = ["llama", "phi3", "gptj"]


@functools.cache
def before(name: str) -> OpenVINOModel:
    model = PassManager([ToOpenVINO(), FuseAttention(), DropIdentities()]).run(load(export(name, "onnx"))).model
    assert isinstance(model, OpenVINOModel)
    return model


def dropped(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return piped(model, DropNeedlessBroadcasts())


def batch_of(x: openvino.Node) -> openvino.Node:
    return ops.gather(ops.shape_of(x), integers(0), ops.constant(0))


def row(*shape: int) -> openvino.Node:
    return ops.constant(numpy.arange(numpy.prod(shape), dtype=numpy.float32).reshape(shape))


#: x is [batch, 1, 6], y is [batch, 1, 6] of another batch.
FORMS = {
    "product with the batch": (
        lambda x, y: ops.matmul(
            ops.broadcast(row(1, 4, 1), ops.concat([batch_of(x), integers(4, 1)], 0)), x, False, False
        ),
        True,
    ),
    "product with another batch": (
        lambda x, y: ops.matmul(
            ops.broadcast(row(1, 4, 1), ops.concat([batch_of(y), integers(4, 1)], 0)), x, False, False
        ),
        False,
    ),
    "product with the weights of experts": (
        lambda x, y: ops.matmul(
            ops.broadcast(
                ops.reshape(x, integers(1, -1, 6), False), ops.concat([integers(4), batch_of(x), integers(6)], 0)
            ),
            row(4, 6, 8),
            False,
            False,
        ),
        False,
    ),
    "rows of a product": (
        lambda x, y: ops.matmul(
            ops.broadcast(row(1, 1, 1), ops.concat([batch_of(x), integers(4, 1)], 0)), x, False, False
        ),
        False,
    ),
    "sum": (lambda x, y: ops.add(x, ops.broadcast(row(6), ops.shape_of(x))), True),
    "sum with another batch": (lambda x, y: ops.add(x, ops.broadcast(row(6), ops.shape_of(y))), False),
    "sum of higher rank": (lambda x, y: ops.add(row(6), ops.broadcast(row(6), integers(1, 6))), False),
    "two into one": (
        lambda x, y: ops.add(ops.broadcast(row(6), ops.shape_of(x)), ops.broadcast(row(6), ops.shape_of(x))),
        True,
    ),
    "choice": (
        lambda x, y: ops.select(ops.greater(x, y), ops.broadcast(row(6), ops.shape_of(ops.add(x, y))), x),
        False,
    ),
    "activation": (lambda x, y: ops.relu(ops.broadcast(row(6), ops.shape_of(x))), False),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_reader(form):
    build, goes = FORMS[form]
    x, y = (ops.parameter([-1, 1, 6], openvino.Type.f32) for _ in range(2))
    for parameter, name in ((x, "x"), (y, "y")):
        parameter.output(0).set_names({name})
    result = ops.result(build(x, y))
    result.output(0).set_names({"out"})
    kept = ops.result(ops.relu(y))
    kept.output(0).set_names({"kept"})
    model = OpenVINOModel(openvino.Model([result, kept], [x, y], "made"))
    after, outcome = dropped(model)
    assert isinstance(outcome, Changed) is goes
    random = numpy.random.default_rng(0)
    for batches in ((3, 3), (3, 1), (1, 1)):
        given = {
            name: random.standard_normal([batch, 1, 6]).astype(numpy.float32)
            for name, batch in zip("xy", batches, strict=True)
        }
        expected, found = infer(model.ov_model, given), infer(after.ov_model, given)
        numpy.testing.assert_array_equal(found["out"], expected["out"])


@pytest.mark.parametrize("name", ["llama", "phi3"])
def test_frequencies_are_not_expanded(name):
    model = before(name)
    after, result = dropped(model)
    assert isinstance(result, Changed)

    def expanded(of: OpenVINOModel) -> list[str]:
        products = [op for op in of.ov_model.get_ops() if op.get_type_name() in {"MatMul", "Multiply"}]
        sources = [source.get_node() for op in products for source in op.input_values()]
        return [
            node.get_friendly_name()
            for node in sources
            if node.get_type_name() == "Broadcast" and node.get_output_element_type(0) == openvino.Type.f32
        ]

    assert len(expanded(model)) > len(expanded(after)) == 0


@pytest.mark.parametrize("name", MODELS)
def test_decodes_the_reference_tokens_behind_padding(name):
    after, _ = dropped(before(name))
    model = compiled(PassManager([MakeStateful()]).run(after).model.ov_model)
    expected = reference(name)
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    assert greedy(model.create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]


@pytest.mark.parametrize("name", MODELS)
def test_twice(name):
    after, _ = dropped(before(name))
    _, result = dropped(after)
    assert isinstance(result, Unchanged)
