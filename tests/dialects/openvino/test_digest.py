"""Digests of the structure of models: what changes them, and what does not."""

import openvino
import pytest

from graphpass.dialects.openvino.digest import digest
from graphpass.storage.weight_file import MappedWeights
from graphpass.testing import parse_model

TEXT = """%x = Parameter : f32[b, 4]
%w = Constant : f32[4, 4]
%a = MatMul(%x, %w)
%c = Add(%a, 1.0)
%y = Relu(%c)
Result(%y) {name=y}"""


def digest_of(text=TEXT, edit=None, **options):
    model = parse_model(text, "openvino").ov_model
    if edit is not None:
        edit(model)
    return digest(model, MappedWeights(()), **options)


def named(model):
    next(op for op in model.get_ops() if op.get_type_name() == "Relu").set_friendly_name("other")


def noted(model):
    model.set_rt_info("1", ["runtime_options", "A"])


def stamped(model):
    model.set_rt_info("2026", ["Runtime_version"])


def test_equal_models_have_equal_digests():
    assert digest_of() == digest_of()
    moved = TEXT.replace("%w = Constant : f32[4, 4]\n", "").replace("%a =", "%w = Constant : f32[4, 4]\n%a =")
    assert digest_of(moved) == digest_of()
    assert digest_of(edit=stamped) == digest_of()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1.0", "2.0"),
        ("Relu", "Tanh"),
        ("f32[b, 4]", "f32[3, 4]"),
        ("{name=y}", "{name=z}"),
        ("%w = Constant : f32[4, 4]", "%w = Constant #1 : f32[4, 4]"),
        ("MatMul(%x, %w)", "MatMul(%x, %w) {transpose_b=true}"),
        ("Add(%a, 1.0)", "Subtract(%a, 1.0)"),
    ],
)
def test_operators_constants_and_ports_change_it(old, new):
    assert old in TEXT
    assert digest_of(TEXT.replace(old, new)) != digest_of()


@pytest.mark.parametrize("edit", [named, noted])
def test_names_and_notes_change_it(edit):
    assert digest_of(edit=edit) != digest_of()


def test_inferred_shapes_may_be_left_out():
    def restated(model):
        node = next(op for op in model.get_ops() if op.get_type_name() == "Relu")
        node.set_output_type(0, openvino.Type.f32, openvino.PartialShape([7, 4]))

    assert digest_of(edit=restated, shapes=False) == digest_of(shapes=False)
    assert digest_of(edit=restated) != digest_of()


def test_large_constants_are_sampled_at_their_ends():
    large = TEXT.replace("f32[4, 4]", "f32[4, 400]")
    assert digest_of(large.replace("Constant :", "Constant #1 :")) != digest_of(large)
