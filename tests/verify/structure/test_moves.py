"""Inputs that move slots of caches: equal to caches that were moved before."""

from __future__ import annotations

import pytest
from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from mutants.faults import faults
from support.loaded import converted, exported
from verify.structure.comparing import unequal

from graphpass.verify.structure.proof import compare_structures


def test_rows_of_states_are_selected_beside_moved_slots():
    reference = exported("lfm2/ov-stateful")
    result = converted(reference, "cpu{cache=reorder}").model
    fault = next(fault for fault in faults(result) if fault.kind == "beam Gather gone")
    assert [left.name for left in unequal(reference, fault.put_into(result), unpadded=True)]


MOVED = ("cpu{cache=reorder}", "gpu{cache=reorder}", "gpu{cache=reorder,trim=begin-one}", "ort{cache=reorder}")


@pytest.mark.parametrize("target", MOVED)
@pytest.mark.parametrize("model", ["llama", "gpt2", "bloom"])
def test_moving_slots_equals_moved_caches(model, target):
    reference = exported(f"{model}/onnx")
    found = compare_structures(reference, converted(reference, target).model)
    assert found is not None
    assert found.equal == found.operators > 0
    assert found.assumed[0] == "src_idx and dst_idx moved slots of the caches before"
    assert ("slot 0" in str(found.assumed)) == ("begin-one" in target)


@pytest.mark.parametrize("target", MOVED)
def test_no_fault_of_moves_is_proven(target):
    reference = exported("llama/onnx")
    result = converted(reference, target).model
    found = [fault for fault in faults(result) if "slots" in fault.kind and "move" in fault.kind]
    assert len(found) >= 3
    assert [fault.kind for fault in found if not unequal(reference, fault.put_into(result), unpadded=True)] == []
