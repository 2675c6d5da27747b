"""Passes before a target's own, and models that no target can continue."""

from dataclasses import dataclass

import pytest

from graphpass.engine.target import Target
from graphpass.errors import UnsupportedError
from graphpass.jobs.pipelines import pipeline_for
from graphpass.testing import parse_model, tiny_model


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
    ],
)
def test_passes_follow_from_the_model(text, names):
    passes = pipeline_for(Plain(), parse_model(text))
    assert [each.name for each in passes] == names


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
