"""expose-alibi: the one form that paged attention finds, the same numbers, nothing where something else is added."""

from __future__ import annotations

import functools

import numpy
import openvino
import pytest
from openvino import opset13
from support.models import export
from support.pipelines import run_passes

import graphpass
from graphpass.analysis.attention.alibi import is_exposed
from graphpass.analysis.caches.masks import find_masks
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.attention.expose_alibi import ExposeAlibi
from graphpass.runtime import open_session
from graphpass.targets import check_model
from graphpass.verify import compare

#: Bloom adds it to the scores; Falcon to the scores and, in a Select, to the mask.
MODELS = ("bloom", "falcon_alibi")

BEFORE = "to-openvino,fuse-attention,expose-window,simplify-shapes"


@functools.cache
def before(name: str) -> OpenVINOModel:
    return PassManager(graphpass.parse(BEFORE)).run(graphpass.load(export(name, "onnx"))).model


def exposed(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return run_passes(model, ExposeAlibi())


def masks(model: OpenVINOModel):
    return [node.inputs[3] for node in model.graph.of_op("ScaledDotProductAttention")]


@pytest.mark.parametrize("name", MODELS)
def test_alibi_is_in_the_branch_of_a_select(name):
    def selects(model):
        return [is_exposed(model.graph, mask) for mask in masks(model)]

    assert selects(before(name)) == [False, False]
    after, result = exposed(before(name))
    assert result.changed
    assert result.statistics == {"attention with ALiBi": 2}
    assert selects(after) == [True, True]


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_stay(name):
    after, _ = exposed(before(name))
    comparison = compare(graphpass.load(export(name, "onnx")), after, steps=16)
    assert comparison.passed, comparison.summary()
    assert comparison.max_abs_difference < 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_a_second_run_changes_nothing(name):
    after, _ = exposed(before(name))
    again, result = exposed(after)
    assert not result.changed
    assert again.digest() == after.digest()


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt_neo"])
def test_models_without_alibi_are_unchanged(name):
    _, result = exposed(before(name))
    assert not result.changed
    assert not result.notes


def changed(change) -> OpenVINOModel:
    """Bloom with something done to the mask that its attention reads."""
    model = before("bloom").clone()
    for op in model.ov_model.get_ordered_ops():
        if op.get_type_name() == "ScaledDotProductAttention":
            op.input(3).replace_source_output(change(op.input_value(3)).output(0))
    model.ov_model.validate_nodes_and_infer_types()
    model.mark_edited()
    return model


def test_a_bias_beside_alibi_stays():
    """What is added to nearer keys would be lost: then the form stays unchanged, with a word."""

    def change(mask):
        keys = opset13.gather(opset13.shape_of(mask), opset13.constant(3), opset13.constant(0))
        places = opset13.convert(opset13.range(opset13.constant(0), keys, opset13.constant(1), "i64"), "f32")
        return opset13.add(mask, opset13.multiply(places, places))

    after, result = exposed(changed(change))
    assert not result.changed
    assert after.graph.producer(masks(after)[0]).op == "Add"


def test_constants_per_head_are_dropped():
    added = numpy.linspace(0.1, 0.9, 4, dtype=numpy.float32).reshape(1, 4, 1, 1)
    model = changed(lambda mask: opset13.add(mask, opset13.constant(added)))
    after, result = exposed(model)
    assert result.changed
    assert compare(model, after, steps=8).passed


def test_pairs_of_inverse_transposes():
    def turned(mask):
        order = opset13.constant(numpy.array([0, 1, 3, 2]))
        return opset13.transpose(opset13.transpose(mask, order), order)

    model = changed(turned)
    after, result = exposed(model)
    assert result.changed
    assert compare(model, after, steps=8).passed


def left_open(rows: int) -> OpenVINOModel:
    """Bloom whose ALiBi is laid out once more, ``[batch, -1, rows, keys]``, as Falcon's is in exports by optimum."""

    def reshaped(term: openvino.Output) -> openvino.Node:
        sizes = opset13.shape_of(term)
        first, last = (opset13.gather(sizes, opset13.constant([axis]), opset13.constant(0)) for axis in (0, 3))
        return opset13.reshape(term, opset13.concat([first, opset13.constant([-1, rows]), last], 0), False)

    def change(mask: openvino.Output) -> openvino.Node:
        total = mask.get_node().input_value(0).get_node()
        assert [mask.get_node().get_type_name(), total.get_type_name()] == ["Maximum", "Add"]
        return opset13.add(reshaped(total.input_value(0)), total.input_value(1))

    return changed(change)


def test_an_open_number_of_heads():
    given = left_open(1)
    assert given.graph.producer(masks(given)[0]).inputs[0].shape[1] is None
    after, result = exposed(given)
    assert result.changed, result.notes
    assert all(is_exposed(after.graph, mask) for mask in masks(after))
    assert compare(given, after, steps=8).passed


def test_open_heads_in_front_of_other_rows_stay():
    _, result = exposed(left_open(4))
    assert not result.changed


def counted_ahead(step: int = 1, one_for_all: bool = False) -> OpenVINOModel:
    """Bloom whose positions are constant and cut to as many as there are keys, as MPT's are in exports by optimum."""
    (slopes,) = {mask.slopes for mask in before("bloom").analysis(find_masks)}
    first, last, all_ = (opset13.constant([number]) for number in (0, 512, 2**63 - 1))

    def change(mask: openvino.Output) -> openvino.Node:
        hidden = mask.get_node().input_value(0).get_node().input_value(1)
        positions = opset13.constant(numpy.arange(-511, 1).reshape(1, 1, 1, -1) * step)
        by_head = opset13.constant(numpy.array(slopes, numpy.float32).reshape(1, -1, 1, 1))
        table = opset13.squeeze(opset13.multiply(opset13.convert(positions, "f32"), by_head), first)
        keys = opset13.gather(opset13.shape_of(hidden), opset13.constant([3]), opset13.constant(0))
        start = opset13.constant([511]) if one_for_all else opset13.subtract(last, keys)
        rows = opset13.slice(table, start, all_, opset13.constant([1]), opset13.constant([2]))
        shifted = opset13.add(opset13.constant(numpy.ones([1, 1, 1], numpy.float32)), rows)
        added = opset13.unsqueeze(shifted, first)
        seen_not = opset13.less(hidden, opset13.constant(numpy.float32(-1)))
        return opset13.select(seen_not, opset13.constant(numpy.finfo(numpy.float32).min), added)

    return changed(change)


def test_alibi_of_constant_positions_is_exposed():
    after, result = exposed(counted_ahead())
    assert result.changed, result.notes
    assert result.statistics == {"attention with ALiBi": 2}
    assert all(is_exposed(after.graph, mask) for mask in masks(after))
    comparison = compare(graphpass.load(export("bloom", "onnx")), after, steps=8)
    assert comparison.passed, comparison.summary()


@pytest.mark.slow
def test_constant_positions_beside_empty_slots_of_npuw():
    model = counted_ahead()
    made = PassManager(graphpass.get_target("npu").pipeline(model)).run(model).model
    report = check_model(made, "npu")
    assert report.holds, report.findings
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions


def by_distance() -> OpenVINOModel:
    """Bloom without attention_mask, whose ALiBi is the distance of slots, as in exports by mobius."""
    (slopes,) = {mask.slopes for mask in before("bloom").analysis(find_masks)}
    model = before("bloom").clone()
    native = model.ov_model
    blocks = [op for op in native.get_ordered_ops() if op.get_type_name() == "ScaledDotProductAttention"]
    zero, one = opset13.constant(0), opset13.constant(1)

    def size(value: openvino.Output) -> openvino.Node:
        return opset13.gather(opset13.shape_of(value), opset13.constant(2), zero)

    total = size(blocks[0].input_value(1))
    past = opset13.subtract(total, size(blocks[0].input_value(0)))
    keys = opset13.range(zero, total, one, "i64")
    queries = opset13.unsqueeze(opset13.range(past, total, one, "i64"), one)
    distance = opset13.convert(opset13.absolute(opset13.subtract(keys, queries)), "f32")
    by_head = opset13.constant(-numpy.array(slopes, numpy.float32).reshape(1, -1, 1, 1))
    bias, hidden = opset13.multiply(by_head, distance), opset13.greater(keys, queries)
    mask = opset13.select(hidden, opset13.constant(numpy.float32(-3e38)), bias)
    for op in blocks:
        op.input(3).replace_source_output(mask.output(0))
    native.remove_parameter(next(port for port in native.get_parameters() if "attention_mask" in port.output(0).names))
    native.validate_nodes_and_infer_types()
    model.mark_edited()
    return model


def test_distances_of_slots_are_exposed_without_padding():
    given = by_distance()
    after, result = exposed(given)
    assert result.changed, result.notes
    assert all(is_exposed(after.graph, mask) for mask in masks(after))
    comparison = compare(given, after, steps=8)
    assert comparison.passed, comparison.summary()


def test_one_position_for_all_keys_stays():
    _, result = exposed(counted_ahead(one_for_all=True))
    assert not result.changed


def test_constants_in_steps_of_two():
    model = counted_ahead(step=2)
    after, result = exposed(model)
    assert result.changed
    prompt = [[285, 89, 83, 147, 286]]
    numpy.testing.assert_allclose(open_session(after).prefill(prompt), open_session(model).prefill(prompt), atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_cpu_plugin_still_fuses(name):
    from support.decode import fused_attention

    after = PassManager(graphpass.parse("make-stateful{beam-index=true}")).run(exposed(before(name))[0]).model
    assert fused_attention(openvino.Core().compile_model(after.ov_model, "CPU")) == 2
