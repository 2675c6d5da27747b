import numpy
import openvino
import pytest
from openvino import opset13 as ops
from openvino.op.util import Variable, VariableInfo
from support import layout_forms, operator_forms
from support.cache_graphs import TinyDecoder
from support.loaded import exported
from support.quick_cases import model_files, quick_files

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.reports.cache import reason_about

#: How the rule begins that holds, by kind of cache.
RULES = {
    "kv": ("kv:", "an operator updates it internally"),
    "linear": ("linear:", "an operator updates it internally", "the state of"),
    "cross": ("cross:",),
}
RULES["other"] = ("no cache:", *RULES["linear"])


@pytest.mark.parametrize("path", quick_files(model_files()))
def test_the_deciding_rule_agrees_with_the_inventory(path):
    model = exported(path)
    inventory = graphpass.analyze_caches(model)
    for cache in inventory.caches:
        reasoning = reason_about(model, inventory, cache)
        *missed, held = reasoning.attempts
        assert held.holds
        assert held.rule.startswith(RULES[cache.kind])
        assert not any(attempt.holds for attempt in missed)
        assert all(attempt.fact for attempt in reasoning.attempts)
        assert bool(reasoning.readers) == (cache.kind in {"kv", "cross"})
        assert reasoning.path[0].name == cache.read
        assert cache.write is None or reasoning.path[-1].name == cache.write


def test_readers_name_the_operators_between():
    model = TinyDecoder(layout="BLHD", layers=1).build()
    inventory = graphpass.analyze_caches(model)
    reasoning = reason_about(model, inventory, inventory.caches[0])
    (reader,) = reasoning.readers
    assert reader.role == "key"
    assert [step.split()[0] for step in reader.through] == ["Concat"]


FORMS = {
    **{f"window {cuts}": (layout_forms.window, cuts) for cuts in ("before", "after")},
    **{f"in place by {how}": (layout_forms.in_place, how) for how in ("ScatterElements", "ScatterND", "by place")},
    **{f"quantized, {how}": (layout_forms.quantized, how) for how in ("constant", "carried", "arithmetic")},
    **{kind: (operator_forms.recurrent, kind) for kind in ("LSTM", "GRU")},
    **{f"Attention-{opset}": (operator_forms.attention, opset) for opset in (23, 24)},
    **{form.__name__: (form,) for form in (layout_forms.latent, layout_forms.packed_pair, layout_forms.all_layers)},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_deciding_rule_agrees_with_the_inventory_in_any_form(form):
    build, *arguments = FORMS[form]
    model = build(*arguments)
    inventory = graphpass.analyze_caches(model)
    assert inventory.caches
    for cache in inventory.caches:
        attempts = reason_about(model, inventory, cache).attempts
        assert [attempt.rule.startswith(RULES[cache.kind]) for attempt in attempts if attempt.holds] == [True]


def test_an_unread_cache_is_appended_but_unknown():
    model = layout_forms.unread()
    inventory = graphpass.analyze_caches(model)
    (cache,) = inventory.of_kind("unknown")
    reasoning = reason_about(model, inventory, cache)
    assert reasoning.readers == ()
    assert [attempt.rule for attempt in reasoning.attempts if attempt.holds] == [
        "appended, but the reader of its positions is unknown"
    ]
    kept, indexed = reasoning.attempts[-3:-1]
    assert "but no recognized attention reads it by position" in kept.fact
    assert indexed.fact == "no TopK selects positions by scores computed from it"


def variable(name, shape, kind):
    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape(shape), kind, name
    return Variable(info)


def test_other_tensors_are_not_caches():
    ids = ops.parameter(openvino.PartialShape([-1, -1]), openvino.Type.i64)
    hidden = ops.gather(ops.constant(numpy.ones((5, 4), numpy.float32)), ids, ops.constant(0))
    weights, count = variable("lora", [-1, 4], openvino.Type.f32), variable("count", [1], openvino.Type.i64)
    adapted = ops.matmul(hidden, openvino.op.read_value(weights), False, True)
    counted = openvino.opset6.read_value(ops.constant(numpy.array([0])), count)
    more = ops.add(counted, ops.constant(numpy.array([1])))
    results = [ops.result(adapted), ops.result(ops.add(counted, counted))]
    model = OpenVINOModel(openvino.Model(results, [openvino.opset6.assign(more, count)], [ids], ""))
    inventory = graphpass.analyze_caches(model)
    held = {
        cache.name: next(one.rule for one in reason_about(model, inventory, cache).attempts if one.holds)
        for cache in inventory.caches
    }
    assert held == {"lora": "no cache: weights that the application sets (LoRA)", "count": "no cache: a counter"}
