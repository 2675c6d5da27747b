"""Whatever kinds of caches a decoder mixes, in whatever order, under whatever names."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
from analysis.caches.random_decoders import FORMS, Layer, decoder, decoders
from hypothesis import given, settings, strategies as some
from support.cache_graphs import Renaming, renamed, shuffled

import graphpass


def rows(inventory):
    return {(c.read, c.write, c.kind, c.role, c.layer, c.axes) for c in inventory.caches}


@settings(max_examples=60, deadline=None)
@given(decoders(), some.integers(0, 99))
def test_every_cache_has_its_kind_and_axes(built, seed):
    inventory = graphpass.analyze_caches(built.model)
    assert rows(inventory) == built.rows
    assert inventory.kind == built.kind
    assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())

    rename = Renaming(seed)
    found = graphpass.analyze_caches(shuffled(renamed(built.model, rename), seed))
    assert rows(found) == {
        (rename(past), rename(present) if present else None, *told) for past, present, *told in built.rows
    }


@pytest.mark.parametrize("form", FORMS)
def test_each_form_runs(form):
    model = decoder([Layer(form)]).model
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    sizes = {"B": 2, "N": 2, "P": 3, "E": 4}
    feeds = {
        port.name: numpy.zeros(
            [sizes.get(size, size) for size in port.shape], numpy.int64 if "int64" in port.type else numpy.float32
        )
        for port in session.get_inputs()
    }
    for port, array in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert len(port.shape) == array.ndim
