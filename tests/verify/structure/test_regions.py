"""Regions: the first operators that differ, and values that are equal in any order of axes."""

from __future__ import annotations

from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from mutants.faults import faults
from support.loaded import converted, exported

from graphpass.verify.structure.proof import compare_structures


def test_a_fault_is_named_as_a_region():
    reference = exported("llama/onnx")
    result = converted(reference, "cpu").model
    fault = next(fault for fault in faults(result) if fault.kind == "logits if token 113 is fed")
    found = compare_structures(reference, fault.put_into(result))
    assert found is not None
    assert found.equal < found.unpadded < found.operators
    assert found.operators - found.unpadded < 20
    assert any(region.node.startswith("fault") for region in found.regions)
