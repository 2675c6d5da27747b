"""Masks and angles of one sampled step, as numbers."""

from dataclasses import replace

import numpy
import pytest

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.equations.angles import find_angles
from graphpass.analysis.equations.evaluation import SampledStep
from graphpass.analysis.equations.sampled import columns_at, step_at, visible_at
from graphpass.ir.miss import Miss, MissError
from graphpass.testing import FAMILIES, run, tiny_model

STEP = SampledStep(2, 3, 4)


def blocked(model):
    """Return the masks of all attention, as whether keys are hidden."""
    evaluation = step_at(model, STEP)
    return [
        numpy.isneginf(visible_at(attention.node, attention.masks, STEP, evaluation))
        for attention in model.analysis(find_attention)
    ]


def expected(window=None):
    query, key = numpy.arange(STEP.length)[:, None] + STEP.past, numpy.arange(STEP.total)
    return (key > query) | (False if window is None else key <= query - window)


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_causal_masks_hide_later_keys(dialect):
    for hidden in blocked(tiny_model("llama", dialect)):
        assert (numpy.broadcast_to(hidden, (2, 1, 4, 7)) == expected()).all()


def test_windows_hide_earlier_keys():
    masks = blocked(tiny_model(replace(FAMILIES["llama"], window=6)))
    assert [(numpy.broadcast_to(hidden, (2, 1, 4, 7)) == expected(6)).all() for hidden in masks] == [True, False]
    assert (numpy.broadcast_to(masks[1], (2, 1, 4, 7)) == expected()).all()


def test_attributes_of_fused_operators_are_masks():
    fused = run(tiny_model("llama", layers=1), "fuse-group-query-attention{context=64}")
    (hidden,) = blocked(fused)
    assert (numpy.broadcast_to(hidden, (2, 1, 4, 7)) == expected()).all()


def test_a_bias_is_a_number():
    model = tiny_model("bloom", layers=1)
    (attention,) = model.analysis(find_attention)
    found = visible_at(attention.node, attention.masks, STEP, step_at(model, STEP))
    query, key = numpy.arange(STEP.length)[:, None] + STEP.past, numpy.arange(STEP.total)
    slopes = 2.0 ** -(2 * numpy.arange(4) + 2)
    wanted = numpy.where(expected(), -numpy.inf, slopes[:, None, None] * (key - query))
    numpy.testing.assert_allclose(
        numpy.broadcast_to(found, (2, 4, 4, 7)), numpy.broadcast_to(wanted, (2, 4, 4, 7)), rtol=1e-6
    )


def test_a_mask_that_is_not_found_is_a_miss():
    model = tiny_model("llama", layers=1)
    (attention,) = model.analysis(find_attention)
    with pytest.raises(MissError, match="no such mask"):
        visible_at(attention.node, Miss(attention.node, "no such mask"), STEP, step_at(model, STEP))


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_angles_are_those_of_the_new_positions(name):
    model = tiny_model(name, layers=1)
    (angles, *_) = model.analysis(find_angles)
    found = columns_at(angles, STEP, step_at(model, STEP))
    width = 8 if name == "llama" else 4
    frequencies = 10000.0 ** -(numpy.arange(0, width, 2) / width)
    turned = numpy.arange(3, 7)[:, None] * frequencies
    wanted = {tuple(column.round(4)) for column in (*numpy.cos(turned).T, *numpy.sin(turned).T)}
    assert {tuple(abs_.round(4)) for abs_ in found.T} <= wanted | {tuple(-numpy.array(column)) for column in wanted}
    assert len({tuple(column.round(4)) for column in found.T}) >= width
