"""Windows of all layers in one stack, as transformers keeps those of mamba2."""

import numpy
import openvino
from openvino import opset13 as ops

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel


def named(node: openvino.Node, name: str) -> openvino.Node:
    node.set_friendly_name(name)
    node.output(0).set_names({name})
    return node


def stacked(layers: int) -> OpenVINOModel:
    """Each layer takes its window out of the stack, shifts a column in, and writes it back."""
    ids = named(ops.parameter([-1, 1], numpy.int64), "input_ids")
    pasts = [named(ops.parameter([-1, 8, 4], numpy.float32), f"past.{layer}") for layer in range(layers)]
    states = [named(ops.parameter([-1, 8, 4], numpy.float32), f"state.{layer}") for layer in range(layers)]
    table = ops.constant(numpy.random.default_rng(0).standard_normal((9, 8), numpy.float32))
    hidden = ops.gather(table, ops.squeeze(ids, 1), ops.constant(0))
    zero, last = ops.constant(0), ops.constant([2])
    windows, sums = (ops.concat([ops.unsqueeze(one, zero) for one in some], 0) for some in (pasts, states))
    for layer in range(layers):
        column = ops.unsqueeze(hidden, ops.constant(2))
        old = ops.gather(windows, ops.constant(layer), zero)
        tail = ops.slice(old, ops.constant([1]), ops.constant([4]), ops.constant([1]), last)
        place = ops.constant([[layer]])
        windows = ops.scatter_nd_update(windows, place, ops.unsqueeze(ops.concat([tail, column], 2), zero))
        mixed = ops.add(ops.gather(sums, ops.constant(layer), zero), ops.gather(windows, ops.constant(layer), zero))
        sums = ops.scatter_nd_update(sums, place, ops.unsqueeze(mixed, zero))
        hidden = ops.reduce_sum(mixed, last, False)
    presents = [
        named(ops.result(ops.gather(stack, ops.constant(layer), zero)), f"{name}.{layer}")
        for stack, name in ((windows, "present"), (sums, "next_state"))
        for layer in range(layers)
    ]
    logits = named(ops.result(ops.unsqueeze(hidden, ops.constant(1))), "logits")
    return OpenVINOModel(openvino.Model([logits, *presents], [ids, *pasts, *states]))


def test_stacked_caches_have_their_roles():
    roles = {cache.read: cache.role for cache in graphpass.analyze_caches(stacked(2)).caches}
    assert roles == {"past.0": "conv", "past.1": "conv", "state.0": "recurrent", "state.1": "recurrent"}
