"""Caches in loops: told from the dataflow through the bodies, and seen to be so in real steps."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import openvino
import pytest
from onnx import TensorProto, helper
from openvino._offline_transformations import apply_make_stateful_transformation
from support import loop_forms as forms
from support.cache_graphs import Renaming, renamed, shuffled
from support.graph_builder import (
    BATCH,
    HEADS,
    HIDDEN,
    NEW,
    PAST,
    ROOM,
    SIZE,
    GraphBuilder,
    builder_with_hidden_states,
    random_step,
)
from support.models import export

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Axes
from graphpass.reports.cache import reason_about

KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)
STACKED = Axes(batch=1, heads=2, sequence=3, head_dim=4)


def one(role, axes, layer=0):
    return [("past", "linear", role, layer, axes, "present")]


def both(axes, layer=0):
    return [(f"past_{role}", "kv", role, layer, axes, f"present_{role}") for role in ("key", "value")]


def _branching(build: GraphBuilder, flag: str, then: Any, otherwise: Any, outputs: int) -> list[str]:
    branches = {}
    for name, work in (("then_branch", then), ("else_branch", otherwise)):
        body = build.body(name)
        body.gives(*work(body))
        branches[name] = body.graph()
    results = build.op("If", flag, outputs=outputs, **branches)
    return [results] if isinstance(results, str) else results


def _attending(body: GraphBuilder, pasts: list[str], tokens: list[str]) -> list[str]:
    key, value, query = tokens
    whole = [body.op("Concat", past, new, axis=2) for past, new in zip(pasts, (key, value), strict=True)]
    return [*whole, body.attend(*whole, query=query)]


def if_in_loop() -> OnnxModel:
    """A decoder whose step is done in a Loop of one iteration, in a branch: with the past, or from the beginning."""
    build = builder_with_hidden_states("input_ids")
    flag = build.input("flag", [], "bool")
    pasts = build.pasts(["B", HEADS, "P", SIZE])
    tokens = [build.heads() for _ in range(3)]

    def iterate(body: GraphBuilder, number: str, carried: list[str]) -> list[str]:
        return _branching(
            body,
            flag,
            lambda inner: _attending(inner, carried, tokens),
            lambda inner: [
                *(inner.op("Identity", new) for new in tokens[:2]),
                inner.attend(*tokens[:2], query=tokens[2]),
            ],
            3,
        )

    shape = ["B", HEADS, None, SIZE]
    states = [(past, shape) for past in pasts]
    *presents, rows = forms.looped(build, build.constant(numpy.int64(1)), states, iterate, 1)
    build.presents(*presents, ["B", HEADS, "T", SIZE])
    rows = build.op("Transpose", build.op("Squeeze", rows, build.ints(0)), perm=[0, 2, 1, 3])
    forms.write_logits(build, build.op("Reshape", rows, build.ints(0, 0, HEADS * SIZE)), HEADS * SIZE)
    return build.model()


def loop_in_if() -> OnnxModel:
    """A matrix a head that is kept up by a Loop in a branch, and by the step's last token alone in the other."""
    build = builder_with_hidden_states("input_ids")
    flag = build.input("flag", [], "bool")
    state = build.input("past", forms.STATE)
    tokens = [build.new([0, 0, HEADS, SIZE]) for _ in range(3)]

    def all_tokens(body: GraphBuilder) -> list[str]:
        return list(forms.over_tokens(body, "Loop", state, forms.STATE, tokens, forms.remember))

    def last_token(body: GraphBuilder) -> list[str]:
        last = [body.op("Gather", token, body.constant(numpy.int64(-1)), axis=1) for token in tokens]
        final, out = forms.remember(body, state, last)
        return [final, body.op("Unsqueeze", out, body.ints(1))]

    final, out = _branching(build, flag, all_tokens, last_token, 2)
    build.present(final, "present", forms.STATE)
    forms.write_logits(build, build.op("Reshape", out, build.ints(0, 0, HEADS * SIZE)), HEADS * SIZE)
    return build.model()


def no_caches() -> OnnxModel:
    """A Loop over layers that carries no caches, but hidden states, a counter, a sum, and rows that begin empty."""
    build = builder_with_hidden_states("input_ids")
    inputs = build.input("embeddings", ["B", "N", HIDDEN])
    weights = build.weight(forms.LAYERS, HIDDEN, HIDDEN)
    zeros = build.op("Mul", inputs, build.constant(numpy.float32(0)))
    counter = build.constant(numpy.float32(0))

    def iterate(body: GraphBuilder, number: str, carried: list[str]) -> list[str]:
        hidden, total, rows, count = carried
        product = body.op("MatMul", body.op("Tanh", hidden), body.op("Gather", weights, number, axis=0))
        hidden = body.op("Add", hidden, product)
        counted = body.op("Add", count, body.constant(numpy.float32(1)))
        return [hidden, body.op("Add", total, hidden), body.op("Concat", rows, product, axis=1), counted]

    states: list[tuple[str, Any]] = [(inputs, ["B", "N", HIDDEN]), (zeros, ["B", "N", HIDDEN])]
    states += [(zeros, ["B", None, HIDDEN]), (counter, [])]
    final, total, rows, count = forms.looped(build, build.constant(numpy.int64(forms.LAYERS)), states, iterate, 0)
    forms.write_logits(build, build.op("Add", "hidden", final), HIDDEN)
    for value, name in ((final, "hidden_states"), (total, "total"), (rows, "rows")):
        build.present(value, name, ["B", "N" if name != "rows" else "R", HIDDEN])
    build.output(count, "count", [])
    return build.model()


#: Form: (model, what each cache is).
FORMS = {
    "recurrent in Scan": (forms.recurrent, one("recurrent", Axes(batch=0))),
    "recurrent in Loop": (lambda: forms.recurrent("Loop"), one("recurrent", Axes(batch=0))),
    "recurrent, shapes not said": (lambda: forms.recurrent("Loop", shapes=False), one("recurrent", Axes(batch=0))),
    "window in Scan": (forms.convolved, one("conv", Axes(batch=0))),
    "window in Loop": (lambda: forms.convolved("Loop"), one("conv", Axes(batch=0))),
    "appended in Loop": (forms.appended, both(KV)),
    "appended, shapes not said": (lambda: forms.appended(shapes=False), both(KV)),
    "Scan over layers": (forms.over_layers, both(STACKED, layer=None)),
    "Loop over layers, in place": (forms.layers_in_place, both(STACKED, layer=None)),
    "Scan in Scan": (forms.states_of_layers, one("recurrent", Axes(batch=1), layer=None)),
    "Loop in Loop": (lambda: forms.states_of_layers("Loop"), one("recurrent", Axes(batch=1), layer=None)),
    "Loop in If": (loop_in_if, one("recurrent", Axes(batch=0))),
    "If in Loop": (if_in_loop, both(KV)),
    "no caches": (no_caches, []),
}

#: What OpenVINO's frontend converts: it takes what the body of a Scan captures for another state.
CONVERTED = {form: row for form, row in FORMS.items() if form != "Scan in Scan"}


def rows(inventory):
    return [(one.name, one.kind, one.role, one.layer, one.axes, one.write) for one in inventory.caches]


def in_openvino(model):
    return OpenVINOModel(openvino.Core().read_model(model.proto.SerializeToString()))


def stateful(model, expected):
    """``model`` as OpenVINO's own transformation makes it stateful."""
    native = in_openvino(model).ov_model
    apply_make_stateful_transformation(native, {row[0]: row[5] for row in expected})
    return OpenVINOModel(native)


@pytest.mark.parametrize("form", FORMS)
class TestForms:
    def test_every_cache_has_its_kind_and_axes(self, form):
        build, expected = FORMS[form]
        inventory = graphpass.analyze_caches(build())
        assert rows(inventory) == expected
        assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())

    def test_names_and_order_do_not_matter(self, form):
        build, expected = FORMS[form]
        rename = Renaming(len(form))
        inventory = graphpass.analyze_caches(shuffled(renamed(build(), rename), 4))
        assert set(rows(inventory)) == {(rename(row[0]), *row[1:5], rename(row[5])) for row in expected}

    def test_attention_in_bodies_is_found(self, form):
        build, expected = FORMS[form]
        inventory = graphpass.analyze_caches(build())
        names = {row[2]: row[0] for row in expected if row[1] == "kv"}
        read = {(block.key, block.value) for block in inventory.attention}
        assert ((names["key"], names["value"]) in read) if names else not read


@pytest.mark.parametrize("form", CONVERTED)
class TestOpenVINO:
    def test_stateless_loops_are_read(self, form):
        build, expected = FORMS[form]
        inventory = graphpass.analyze_caches(in_openvino(build()))
        assert rows(inventory) == expected
        assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())

    def test_stateful_loops_are_read(self, form):
        build, expected = FORMS[form]
        inventory = graphpass.analyze_caches(stateful(build(), expected))
        assert inventory.stateful is bool(expected)
        assert [row[:5] for row in rows(inventory)] == [(row[0] + row[5], *row[1:5]) for row in expected]

    def test_names_do_not_matter(self, form):
        build, expected = FORMS[form]
        rename = Renaming(len(form))
        inventory = graphpass.analyze_caches(shuffled(renamed(stateful(build(), expected), rename), 2))
        assert {row[:5] for row in rows(inventory)} == {(rename(row[0] + row[5]), *row[1:5]) for row in expected}


class TestEvidence:
    def evidence(self, form):
        return graphpass.analyze_caches(FORMS[form][0]()).caches[0].evidence

    def test_evidence_of_a_state_names_loop_and_update(self):
        assert self.evidence("recurrent in Scan")[0] == (
            "carried through Scan Scan_7, whose body replaces it in each iteration by Add scan_Add_4"
        )

    def test_a_window_names_its_loop(self):
        assert self.evidence("window in Loop")[:2] == (
            "carried through Loop Loop_4, whose body replaces it in each iteration by Concat loop_Concat_4",
            "a window: Concat loop_Concat_4 shifts new columns in",
        )

    def test_the_innermost_loop_is_named(self):
        first, *_, last = self.evidence("Scan in Scan")
        assert first.startswith("carried through Scan layers_Scan_")
        assert last == "several layers in one tensor: Scan Scan_7 selects each layer's part"

    def test_an_appended_cache_names_its_loop(self):
        assert self.evidence("appended in Loop")[0] == (
            "appended along axis 2 by Concat loop_Concat_5 in each iteration of Loop Loop_12, "
            "which is written back whole"
        )

    def test_layers_in_one_tensor_are_named(self):
        assert self.evidence("Scan over layers")[-1] == (
            "several layers in one tensor: Scan Scan_1 selects each layer's part"
        )
        assert self.evidence("Loop over layers, in place")[0].endswith("with room for 9 positions")

    def test_the_path_of_a_state_includes_the_body(self):
        model = FORMS["recurrent in Loop"][0]()
        inventory = graphpass.analyze_caches(model)
        path = [node.op for node in reason_about(model, inventory, inventory.caches[0]).path]
        assert path == ["Parameter", "Carried", "Multiply", "Add", "Final", "Result"]

    @pytest.mark.parametrize("name", ["granitemoehybrid", "qwen3_next"])
    @pytest.mark.parametrize("variant", ["ov-stateless", "ov-stateful"])
    def test_states_of_exports_name_their_loops(self, name, variant):
        inventory = graphpass.analyze_caches(graphpass.load(export(name, variant)))
        states = [cache for cache in inventory.caches if cache.role == "recurrent"]
        assert len(states) == (2 if name == "granitemoehybrid" else 3)
        for state in states:
            assert state.evidence[0].startswith("carried through Loop ")
            assert ", whose body replaces it in each iteration by Add " in state.evidence[0]


@pytest.mark.parametrize("form", [form for form, row in FORMS.items() if row[1] and row[1][0][1] == "linear"])
def test_a_state_persists_between_steps(form):
    """Two tokens in one step leave the same as one token after the other."""
    model = FORMS[form][0]()
    tokens = numpy.array([[1, 5], [3, 2]])
    at_once = random_step(model, input_ids=tokens, **_flag(model))
    first = random_step(model, input_ids=tokens[:, :1], past=at_once["in:past"], **_flag(model))
    second = random_step(model, input_ids=tokens[:, 1:], past=first["present"], **_flag(model))
    numpy.testing.assert_allclose(second["present"], at_once["present"], rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(second["logits"][:, 0], at_once["logits"][:, 1], rtol=1e-3, atol=1e-3)


def _flag(model):
    asked = any(port.name == "flag" for port in model.inputs)
    return {"flag": numpy.array(True)} if asked else {}


@pytest.mark.parametrize("form", ["appended in Loop", "Scan over layers", "If in Loop"])
def test_the_sequence_axis_grows_in_a_real_step(form):
    model = FORMS[form][0]()
    results = random_step(model, **_flag(model))
    for cache in graphpass.analyze_caches(model).caches:
        old, new = results[f"in:{cache.read}"], results[cache.write]
        axis = cache.axes.sequence
        assert (old.shape[axis], new.shape[axis]) == (PAST, PAST + NEW)
        assert (numpy.take(new, range(PAST), axis) == old).all()


def test_one_position_of_all_layers_is_written_in_a_real_step():
    model = forms.layers_in_place()
    results = random_step(model, place=numpy.array([4]))
    for cache in graphpass.analyze_caches(model).caches:
        changed = (results[f"in:{cache.read}"] != results[cache.write]).any((2, 4))
        assert changed.tolist() == [[[position == 4 for position in range(ROOM)]] * BATCH] * forms.LAYERS


@pytest.mark.parametrize("loop", ["Loop", "Scan"])
def test_every_layer_has_a_loop_of_its_own(loop):
    model = forms.deep(3, loop)
    expected = [
        (f"past_{layer}", "linear", "recurrent", layer, Axes(batch=0), f"present_{layer}") for layer in range(3)
    ]
    assert rows(graphpass.analyze_caches(model)) == expected
    assert rows(graphpass.analyze_caches(in_openvino(model))) == expected
    rename = Renaming(3)
    found = graphpass.analyze_caches(shuffled(renamed(model, rename), 6))
    assert rows(found) == [(rename(row[0]), *row[1:5], rename(row[5])) for row in expected]


class TestView:
    def test_inlined_graphs_have_no_cycles_and_loops(self):
        graph = inlined(FORMS["Loop in Loop"][0]()).graph
        assert not any(True for _ in graph.of_op("Loop", "If"))
        assert all(value.node < node.index for node in graph.nodes for value in node.inputs if value is not None)

    @pytest.mark.parametrize("depth", [1, 20])
    def test_states_of_nested_loops_are_found(self, depth):
        model = within_loops(depth)
        onnx.checker.check_model(model.proto, full_check=True)
        (cache,) = graphpass.analyze_caches(model).caches
        assert (cache.kind, cache.role, cache.axes) == ("linear", "recurrent", Axes(batch=0))
        inner = f"carried through Loop loop_{depth}, whose body replaces it in each iteration by Add "
        assert cache.evidence[0].startswith(inner)

    def test_a_loop_of_the_first_opset_stays_closed(self):
        """Its Scan has a batch and lengths of its own."""
        body = helper.make_graph(
            [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["y"])],
            "body",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "sx"],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "ty"],
        )
        scan = helper.make_node("Scan", ["", "past", "rows"], ["present", "out"], body=body, num_scan_inputs=1)
        inputs = [helper.make_tensor_value_info("past", TensorProto.FLOAT, ["B", 3])]
        inputs.append(helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["B", "N", 3]))
        outputs = [helper.make_tensor_value_info("present", TensorProto.FLOAT, ["B", 3])]
        graph = helper.make_graph([scan], "main", inputs, outputs)
        model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=10))
        assert [node.op for node in inlined(model).graph.nodes] == ["Parameter", "Parameter", "Scan", "Result"]


def within_loops(depth):
    """A state within ``depth`` Loops of two iterations each: the innermost adds 1 to it."""
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["B", 2, 3])
    nodes = [helper.make_node("Add", [f"state_{depth}", "one"], [f"next_{depth}"], "update")]
    for level in range(depth, 0, -1):
        ports = {f"number_{level}": TensorProto.INT64, f"go_{level}": TensorProto.BOOL}
        inputs = [helper.make_tensor_value_info(name, code, []) for name, code in ports.items()]
        inputs.append(helper.make_value_info(f"state_{level}", kind))
        outputs = [helper.make_tensor_value_info(f"go_on_{level}", TensorProto.BOOL, [])]
        outputs.append(helper.make_value_info(f"next_{level}", kind))
        nodes.append(helper.make_node("Identity", [f"go_{level}"], [f"go_on_{level}"]))
        body = helper.make_graph(nodes, f"body_{level}", inputs, outputs)
        result = f"next_{level - 1}" if level > 1 else "present"
        source = f"state_{level - 1}" if level > 1 else "past"
        nodes = [helper.make_node("Loop", ["two", "", source], [result], f"loop_{level}", body=body)]
    constants = [helper.make_tensor("two", TensorProto.INT64, [], [2])]
    constants.append(helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0]))
    ends = ([helper.make_value_info(name, kind)] for name in ("past", "present"))
    graph = helper.make_graph(nodes, "main", *ends, constants)
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def test_a_variable_in_a_body():
    """OpenVINO's CPU plugin runs a ReadValue and an Assign in a body; the state lasts over iterations and steps."""
    model = forms.variable_in_a_body()
    request = openvino.compile_model(model.ov_model, "CPU").create_infer_request()
    ones = numpy.ones((2, 4), numpy.float32)
    assert [next(iter(request.infer({0: ones}).values()))[:, 0].tolist() for _ in range(2)] == [[1, 2], [3, 4]]
    inventory = graphpass.analyze_caches(model)
    assert inventory.stateful
    assert [(cache.name, cache.kind, cache.role) for cache in inventory.caches] == [("state", "linear", "recurrent")]
