"""Passes before a target's own, and models that no target can continue."""

from dataclasses import dataclass

import pytest
from onnx import helper
from support.slot_caches import slot_decoder

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.target import Target
from graphpass.errors import UnsupportedError
from graphpass.jobs.pipelines import pipeline_for
from graphpass.runtime import open_session
from graphpass.testing import parse_model, tiny_model
from graphpass.verify.session_forms import in_session_form


@dataclass(frozen=True)
class Plain(Target):
    name, description, dialect, output_file = "plain", "A runtime.", "onnx", "m.onnx"

    def pipeline(self, model):
        self.seen.append([node.op for node in model.graph.nodes])
        return ()


Plain.seen = []
BODY = "%x = Parameter : f32[b, n, 4]\n%y = Relu(%x)\nResult(%y) {name=logits}\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (BODY, []),
        (
            BODY + "%one = Constant : f32[2]\n%two = Multiply(%one, 2.0)\nResult(%two) {name=two}",
            ["drop-constant-outputs"],
        ),
        (BODY.replace("Relu(%x)", "Relu(%z)").replace("%y", "%z = Identity(%x)\n%y", 1), ["drop-identities"]),
    ],
)
def test_passes_follow_from_the_model(text, names):
    passes = pipeline_for(Plain(), parse_model(text))
    assert [each.name for each in passes] == names


def test_guards_are_dropped_before_the_masks_over_slots():
    assert [each.name for each in pipeline_for(Plain(), slot_decoder("openvino"))] == ["grow-caches"]
    guarded = slot_decoder("onnx", is_guarded=True)
    assert [each.name for each in pipeline_for(Plain(), guarded)] == ["drop-row-guards", "grow-caches"]


def test_targets_select_passes_on_the_model_after_these():
    pipeline_for(Plain(), parse_model(BODY + "%one = Constant : f32[2]\n%two = Exp(%one)\nResult(%two) {name=two}"))
    assert "Exp" not in Plain.seen[-1]


def test_a_decoder_needs_none_of_them_and_is_unmodified():
    model = tiny_model("llama", layers=1)
    before = len([*model.graph.nodes])
    assert pipeline_for(Plain(), model) == ()
    assert len([*model.graph.nodes]) == before


STEP = """%input_ids = Parameter : i64[b, n]
%past = Parameter : f32[b, 2, past, 4]
%words = Constant : f32[9, 8]
%x = Gather(%words, %input_ids) {axis=0}
%h = Reshape(%x, [0, 0, 2, 4])
%new = Transpose(%h) {order=[0, 2, 1, 3]}
%present = Concat(%past, %new) {axis=2}
%t = Transpose(%present) {order=[0, 1, 3, 2]}
%s = MatMul(%new, %t)
%w = Softmax(%s) {axis=3}
%y = MatMul(%w, %present)
Result(%y) {name=logits}
Result(%present) {name=present}"""


@pytest.mark.parametrize(
    ("tokens", "past", "reason"),
    [
        ("b, n", "past", None),
        ("b, 1", "past", None),
        ("1, 3", "past", "GP329: each step has exactly 3 tokens"),
        ("b, 1", "5", "GP329: each step follows exactly 5 positions"),
    ],
)
def test_steps_of_fixed_size_are_refused(tokens, past, reason):
    model = parse_model(STEP.replace("[b, n]", f"[{tokens}]").replace("past, 4]", f"{past}, 4]"))
    if reason is None:
        assert pipeline_for(Plain(), model) == ()
    else:
        with pytest.raises(UnsupportedError, match=reason):
            pipeline_for(Plain(), model)


def test_functions_are_inlined_before_ports_are_named():
    """The caches of a decoder that is one function are found in its body."""
    model = tiny_model("llama", layers=1)
    assert isinstance(model, OnnxModel)
    graph = model.proto.graph
    inputs = [*(port.name for port in graph.input), *(tensor.name for tensor in graph.initializer)]
    outputs, imports = [port.name for port in graph.output], list(model.proto.opset_import)
    model.proto.functions.append(helper.make_function("mine", "Body", inputs, outputs, list(graph.node), imports))
    renamed = {"input_ids": "tokens"}
    graph.input[0].name = renamed[graph.input[0].name]
    del graph.node[:]
    graph.node.append(helper.make_node("Body", [renamed.get(name, name) for name in inputs], outputs, domain="mine"))
    model.proto.opset_import.append(helper.make_opsetid("mine", 1))
    model.mark_edited()
    passes = pipeline_for(Plain(), model)
    assert [each.name for each in passes] == ["inline-functions", "name-ports"]
    assert open_session(in_session_form(model)).prefill([1, 2, 3]).shape == (1, 3, 64)
