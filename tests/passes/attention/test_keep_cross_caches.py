"""keep-cross-caches; what it makes generates in tests/cli/test_convert_encoder_decoder.py."""

import pytest
from support.models import export

from graphpass import analyze_caches, load
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError
from graphpass.passes.attention.compute_cross_caches import ComputeCrossCaches
from graphpass.passes.attention.keep_cross_caches import KeepCrossCaches
from graphpass.passes.caches.make_stateful import MakeStateful

FOLDER = export("whisper", "ov-stateless")
FIRST, LATER = FOLDER / "openvino_decoder_model.xml", FOLDER / "openvino_decoder_with_past_model.xml"


def run(*passes):
    return PassManager(passes).run(load(LATER)).model


def test_each_cross_cache_is_one_variable():
    model = run(ComputeCrossCaches(str(FIRST)), MakeStateful(), KeepCrossCaches())
    caches = analyze_caches(model).of_kind("cross")
    assert [(cache.layer, cache.role) for cache in caches] == [
        (0, "cross_key"),
        (0, "cross_value"),
        (1, "cross_key"),
        (1, "cross_value"),
    ]
    assert {sink.get_variable_id() for sink in model.ov_model.get_sinks()} >= {
        f"past_key_values.{layer}.encoder.{role}" for layer in (0, 1) for role in ("key", "value")
    }
    for again in (ComputeCrossCaches(str(FIRST)), KeepCrossCaches()):
        assert not PassManager([again]).run(model).records[0].result.changed


def test_a_decoder_without_an_encoder_is_unchanged():
    model = load(export("llama", "ov-stateful"))
    assert not PassManager([KeepCrossCaches()]).run(model).records[0].result.changed


def test_a_stateless_decoder_is_refused():
    with pytest.raises(PreconditionError, match="GP302"):
        run(ComputeCrossCaches(str(FIRST)), KeepCrossCaches())
