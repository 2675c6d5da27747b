"""The use of a static model, in its metadata."""

import pytest

from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.phase import Phase
from graphpass.testing import parse_model

TEXT = """
%past = Parameter : f16[1, 2, 16, 4]
%present = Relu(%past)
Result(%present) {name=present}
"""
CACHE = Cache("past", "kv", "key", 3, Axes(0, 1, 2, 3), (1, 2, 16, 4), "f16", "past", "present")


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_a_phase_survives_the_metadata(dialect):
    model = parse_model(TEXT, dialect)
    assert Phase.find(model) is None
    Phase(4, 16, (CACHE,)).note(model)
    assert Phase.of(model) == Phase.find(model.clone()) == Phase(4, 16, (CACHE,))


@pytest.mark.parametrize(
    "note",
    [
        "{",
        "[]",
        "{}",
        '{"length": 4, "past": 16, "caches": [{}]}',
        '{"length": "four", "past": 16, "caches": []}',
        '{"length": 4, "past": 16, "caches": 3}',
    ],
)
def test_invalid_metadata_is_refused(note):
    model = parse_model(TEXT)
    model.write_note("phase", note)
    with pytest.raises(UnsupportedError, match="GP394: the model's metadata on its caches is invalid"):
        Phase.find(model)


def test_missing_metadata_and_missing_inputs_are_refused():
    model = parse_model(TEXT)
    with pytest.raises(UnsupportedError, match=r"GP394: the metadata .* is missing"):
        Phase.of(model)
    Phase(4, 16, (CACHE,)).note(model)
    other = parse_model(TEXT.replace("%past", "%old"))
    other.write_note("phase", model.read_note("phase"))
    with pytest.raises(UnsupportedError, match="GP394"):
        Phase.of(other)
