"""Windows of models whose caches are cut before the step."""

import pytest
from support.loaded import converted, exported

from graphpass.verify import compare


@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("gemma2/onnx", "cpu{cache=reorder}"),
        pytest.param("mistral_sw8/onnx", "gpu{cache=reorder}", marks=pytest.mark.slow),
    ],
)
def test_windows_count_remaining_slots(place, target):
    reference = exported(place)
    result = converted(reference, target).model
    assert compare(reference, result, steps=4, edits=True).passed
