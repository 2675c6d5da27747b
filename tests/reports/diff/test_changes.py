"""Changes as data."""

from dataclasses import replace

import pytest

from graphpass.reports.diff.changes import Change, ModelDifference, WeightChanges, changes_between


def test_a_percentage_is_never_rounded_up_to_all():
    from graphpass.reports.diff import WeightChanges

    assert WeightChanges(2, 2, 10**12, 1, ()).unchanged_percent == 99.99
    assert WeightChanges(0, 0, 0, 0, ()).unchanged_percent == 100


def test_changed_removed_and_added_entries_are_in_order():
    before = {"same": {"kind": "Add"}, "gone": {"kind": "Mul"}, "edited": {"kind": "Add", "axis": "1", "reads 0": "x"}}
    after = {
        "new": {"kind": "Exp"},
        "edited": {"kind": "Add", "axis": "2", "to": "f16", "reads 0": "x"},
        "same": {"kind": "Add"},
    }
    assert changes_between(before, after) == (
        Change("gone", {"kind": "Mul"}, None),
        Change("edited", {"axis": "1"}, {"axis": "2", "to": "f16"}),
        Change("new", None, {"kind": "Exp"}),
    )
    assert changes_between(before, before) == ()


@pytest.mark.parametrize("section", ["operators", "inputs", "outputs", "caches", "metadata", "other", "weights"])
def test_models_are_the_same_without_any_change(section):
    fields = dict.fromkeys(("operators", "inputs", "outputs", "caches", "metadata"), ())
    none, some = WeightChanges(0, 0, 0, 0, ()), (Change("a", None, {}),)
    same = ModelDifference(("onnx", "onnx"), (), **fields, weights=none, other=False)
    assert same.same
    changed = {"other": True, "weights": replace(none, changes=some)}.get(section, some)
    assert not replace(same, **{section: changed}).same
    assert not replace(same, dialects=("onnx", "openvino")).same
