"""standardize-layout: caches move to any layout and back, tokens stay, and the Transposes are counted."""

from __future__ import annotations

import itertools

import numpy
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support import layout_forms as forms
from support.decode import compiled, fused_attention
from support.graph_builder import random_step
from support.loaded import onnx_model, openvino_model
from support.models import export, fixtures
from support.reference_tokens import generates_reference_tokens

import graphpass
from graphpass.analysis.caches.packed import packed_layout
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.errors import GraphpassError, UnsupportedError
from graphpass.ir.cache import Axes
from graphpass.ir.declaration import Declaration
from graphpass.ir.layout import KVLayout, layout_of
from graphpass.passes.caches.insert_reorder import InsertReorder
from graphpass.passes.caches.standardize_layout import StandardizeLayout

QUICK = [
    ("llama", "onnx", "BSHD"),
    ("gpt2", "onnx", "SBHD"),
    ("llama", "ov-stateful", "BSHD"),
    ("gpt2", "ov-stateless", "BHDS"),
    ("deepseek_v3", "ov-stateful", "BHSD+value-transposed"),
    ("lfm2", "ov-stateless", "HSBD"),
]

#: Every export of a decoder with KV caches outside of attention operators.
ALL = [
    (name.parent.name, name.name)
    for name in sorted(fixtures().glob("*/*"))
    if name.name in {"onnx", "ov-stateful", "ov-stateless"} and name.parent.name not in {"mamba", "t5", "whisper"}
]

ORDERS = ["".join(order) for order in itertools.permutations("BHSD")]


def standardized(model, to="BHSD"):
    """The result, and what the pass says of it."""
    outcome = PassManager([StandardizeLayout(to)]).run(model)
    return outcome.model, outcome.records[0].result


def transposes(model):
    if model.dialect == "onnx":
        return sum(node.op_type == "Transpose" for node in model.proto.graph.node)
    return sum(op.get_type_name() == "Transpose" for op in model.ov_model.get_ops())


def layouts(model):
    """The layout of each KV cache, of which only batch and positions are dynamic."""
    return [(cache.role, str(layout_of(cache))) for cache in graphpass.analyze_caches(model).of_kind("kv")]


def there_and_back(name, variant, to):
    model = graphpass.load(export(name, variant))
    wanted = KVLayout.parse(to)
    moved, result = standardized(model, to)
    moved.validate()
    if to != "BHSD":
        assert result.changed
        assert result.statistics["Transpose before"] == transposes(model)
        assert result.statistics["Transpose after"] == transposes(moved)
    expected = {"key": "".join(to.partition("+")[0]), "value": str(KVLayout(wanted.of("value")))}
    assert all(found == expected[role] for role, found in layouts(moved))
    assert generates_reference_tokens(moved, name)
    back, _ = standardized(moved)
    assert [(port.name, port.shape) for port in back.inputs] == [(port.name, port.shape) for port in model.inputs]
    assert [(port.name, port.shape) for port in back.outputs] == [(port.name, port.shape) for port in model.outputs]
    assert transposes(back) == transposes(model)
    assert generates_reference_tokens(back, name)
    assert not standardized(back)[1].changed
    assert not standardized(moved, to)[1].changed


@pytest.mark.parametrize(("name", "variant", "to"), QUICK)
def test_the_first_layout_is_restored(name, variant, to):
    there_and_back(name, variant, to)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), ALL)
def test_there_and_back_on_every_decoder(name, variant):
    there_and_back(name, variant, ORDERS[hash_of(name, variant) % len(ORDERS)])


def hash_of(*words):
    """A number that is the same in every run."""
    return sum(ord(letter) * place for place, letter in enumerate("".join(words), 1))


@pytest.mark.parametrize("to", ["BSHD", "BHDS", "BHSD+value-transposed"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_cpu_plugin_fuses_restored_layouts(name, to):
    moved, _ = standardized(openvino_model(name), to)
    # Where query, key and value are transposed alike, it fuses BSHD, too.
    assert fused_attention(compiled(moved.ov_model)) == (2 if (name, to) == ("gpt2", "BSHD") else 0)
    assert fused_attention(compiled(standardized(moved)[0].ov_model)) == 2


def test_grouped_heads_are_copied_in_the_layout_of_the_cache():
    """No Transpose of a whole cache stands before its heads are copied: that of attention takes the order up."""
    moved, _ = standardized(onnx_model("llama"), "BSHD")
    graph = moved.graph
    for node in graph.of_op("Unsqueeze"):
        assert graph.producer(node.inputs[0]).op != "Transpose" or node.outputs[0].rank != 5


def test_initializers_follow():
    moved, _ = standardized(openvino_model("llama"), "BSHD")
    for op in moved.ov_model.get_ops():
        if op.get_type_name() == "ReadValue":
            assert op.input_value(0).get_node().get_type_name() == "Broadcast"
            assert [str(size) for size in op.get_input_partial_shape(0)] == ["?", "0", "2", "16"]
            assert [str(size) for size in op.get_output_partial_shape(0)] == ["?", "?", "2", "16"]


FORMS = {
    "sequence_first": forms.sequence_first,
    "shared": forms.shared,
    "window_after": lambda: forms.window("after"),
    "window_before": lambda: forms.window("before"),
    "ScatterElements": lambda: forms.in_place("ScatterElements"),
    "ScatterND": lambda: forms.in_place("ScatterND"),
    "quantized": lambda: forms.quantized("constant"),
    "carried scales": lambda: forms.quantized("carried"),
    "zero points": lambda: forms.quantized("arithmetic"),
    "requantized": forms.requantized,
}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FORMS)), st.sampled_from(ORDERS))
def test_forms_in_random_layouts_compute_the_same(form, to):
    """Every output is what it was: caches with their axes moved, all else as it stood."""
    model = FORMS[form]()
    caches = graphpass.analyze_caches(model).of_kind("kv")
    orders = {}
    for cache in caches:
        order = KVLayout.parse(to).transposition(layout_of(cache))
        orders |= {cache.read: order, cache.write: order}
    assert_moved(model, to, orders)


@pytest.mark.parametrize(
    ("form", "order", "to"),
    [
        (forms.packed_content, (0, 2, 1, 3), "BSHD+packed"),
        (forms.packed_content, (0, 2, 1, 3), "BSHD"),
        (forms.packed_pair, (1, 0, 3, 2, 4), "B2SHD"),
        (lambda: forms.packed_pair(stacks=False), (3, 1, 2, 0, 4), "SBH2D"),
    ],
)
def test_packed_caches_stay_packed(form, order, to):
    model = form()
    moved = assert_moved(model, to, {"past": order, "present": order})
    (cache,) = graphpass.analyze_caches(moved).caches
    assert str(packed_layout(moved, cache)) == ("BSHD+packed" if to == "BSHD" else to)


def assert_moved(model, to, orders):
    """The pass moves axes of inputs and outputs by their ``orders``, and changes no number."""
    moved, result = standardized(model, to)
    if result.changed:
        assert result.statistics["Transpose after"] == transposes(moved)
    onnx.checker.check_model(moved.proto, full_check=True)
    before = random_step(model)
    feeds = {name[3:]: value for name, value in before.items() if name.startswith("in:")}
    after = random_step(moved, **{name: laid(value, orders.get(name)) for name, value in feeds.items()})
    for name in (port.name for port in model.outputs):
        numpy.testing.assert_allclose(after[name], laid(before[name], orders.get(name)), rtol=1e-5, atol=1e-5)
    return moved


def laid(value, order):
    return value if order is None else numpy.ascontiguousarray(value.transpose(order))


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (forms.merged_heads, "a Transpose cannot convert layout BSD to BHSD"),
        (forms.one_head, "a Transpose cannot convert layout BSD to BHSD"),
        (forms.packed_pair, "a Transpose cannot convert layout 2BHSD to BHSD"),
        (forms.all_layers, "neither the graph nor its size determines the role of axis 0"),
    ],
)
def test_caches_of_other_axes_stay(form, says):
    _, result = standardized(form())
    assert not result.changed
    assert says in result.notes[0]


def test_caches_inside_operators_stay():
    _, result = standardized(onnx_model("llama", "onnx-genai"), "BSHD")
    assert not result.changed
    assert "GroupQueryAttention" in result.notes[0]


def test_a_model_without_caches_is_skipped():
    assert isinstance(standardized(onnx_model("llama", "onnx-nocache"))[1], Skipped)


@pytest.mark.parametrize("to", ["BSHD", "DSBH"])
def test_caches_read_in_branches(to):
    """An If reads and writes them in their old layout."""
    model = graphpass.load(fixtures() / "t5" / "onnx" / "decoder_model_merged.onnx")
    moved, result = standardized(model, to)
    moved.validate()
    assert result.statistics["Transpose after"] == 2 * result.statistics["caches moved"]
    back, _ = standardized(moved)
    assert transposes(back) == 0
    assert [port.name for port in back.outputs] == [port.name for port in model.outputs]


def test_declarations_follow_the_layout():
    model = forms.unread()
    model.declare([Declaration("past", "kv", "key", Axes(batch=1, sequence=0, head_dim=2))])
    moved, _ = standardized(model, "BSD")
    assert moved.declarations == (Declaration("past", "kv", "key", Axes(batch=0, sequence=1, head_dim=2)),)
    assert layouts(moved) == [("key", "BSD")]


def test_layouts_of_reordered_caches_are_fixed():
    model = PassManager([InsertReorder()]).run(openvino_model("llama")).model
    assert not standardized(model)[1].changed
    with pytest.raises(GraphpassError, match="input dst_idx depends on the layout"):
        standardized(model, "BSHD")


def test_an_unknown_layout_is_refused():
    with pytest.raises(GraphpassError, match="GP213"):
        standardized(onnx_model("llama"), "BHSX")


@pytest.mark.parametrize("to", ["NHD", "HND"])
def test_pools_of_blocks_are_refused(to):
    """They are how vLLM lays caches out at run time: every cache was left, with a note."""
    with pytest.raises(UnsupportedError, match="layer, block") as caught:
        PassManager([StandardizeLayout(to)]).run(onnx_model("llama"))
    assert caught.value.id == "GP382"
