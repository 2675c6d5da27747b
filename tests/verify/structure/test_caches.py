"""Caches that begin with positions are not those that begin empty."""

import pytest
from mutants.faults import faults
from support.loaded import converted, exported

from graphpass.verify.structure.proof import compare_structures


@pytest.mark.parametrize(("place", "target"), [("bloom/onnx", "cpu"), ("llama/ov-stateful", "gpu")])
def test_growing_caches_begin_empty(place, target):
    reference = exported(place)
    result = converted(reference, target).model
    (fault,) = [fault for fault in faults(result) if fault.kind == "a cache begins with a position"]
    found = compare_structures(reference, fault.put_into(result))
    assert found is not None
    assert found.unpadded < found.operators
