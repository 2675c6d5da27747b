"""Caches of GroupQueryAttention in integers, and back in the query's type."""

import numpy
import pytest

from graphpass.dialects.onnx.rounded_caches import dequantize_caches, round_caches
from graphpass.testing import run, tiny_model


@pytest.fixture(scope="module")
def fused():
    return run(tiny_model("llama", layers=1), "fuse-group-query-attention{context=64}")


def ports(model):
    return {
        port.name: (port.element_type, port.shape[-1])
        for port in (*model.inputs, *model.outputs)
        if port.name.startswith(("past", "present"))
    }


@pytest.mark.parametrize(("bits", "stored"), [(8, ("i8", 8)), (4, ("u8", 4))])
def test_caches_are_rounded_and_restored(fused, bits, stored):
    names = {"past.0.key", "past.0.value", "present.0.key", "present.0.value"}
    assert ports(fused) == dict.fromkeys(names, ("f32", 8))
    model = fused.clone()
    (attention,) = model.graph.of_op("GroupQueryAttention")
    scale = numpy.full((1, 2, 1, 8), 0.5, numpy.float32)
    round_caches(model, {attention.name: (scale, 2 * scale)}, bits)
    assert ports(model) == dict.fromkeys(names, stored)
    (attention,) = model.graph.of_op("GroupQueryAttention")
    assert [model.graph.constant(attention.source(port)).flat[0] for port in (12, 13)] == [0.5, 1.0]
    assert attention.attributes["kv_cache_bit_width"] == bits
    dequantize_caches(model)
    assert ports(model) == ports(fused)
    assert model.digest() == fused.digest()


def test_other_attention_stays(fused):
    model = fused.clone()
    round_caches(model, {}, 8)
    dequantize_caches(model)
    assert model.digest() == fused.digest()
