"""compute-cross-caches and keep-cross-caches; what they make generates in tests/cli/test_convert_encoder_decoder.py."""

import numpy
import pytest
from support.decode import compiled
from support.models import export

from graphpass import analyze_caches, load
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError
from graphpass.passes.attention.compute_cross_caches import ComputeCrossCaches
from graphpass.passes.attention.keep_cross_caches import KeepCrossCaches
from graphpass.passes.caches.make_stateful import MakeStateful

FOLDER = export("whisper", "ov-stateless")
FIRST, LATER = FOLDER / "openvino_decoder_model.xml", FOLDER / "openvino_decoder_with_past_model.xml"


def run(*passes):
    result = PassManager(passes).run(load(LATER))
    assert isinstance(result.model, OpenVINOModel)
    return result


def outputs(model, ids, hidden, past=0):
    inputs = {port.any_name: port for port in model.inputs}
    feeds = {"input_ids": ids, "encoder_hidden_states": hidden}
    for name in inputs.keys() - feeds.keys():
        feeds[name] = numpy.zeros([len(ids), 2, past, 16], numpy.float32)
    return compiled(model)(feeds)


def test_computes_what_the_other_decoder_computes():
    joined = run(ComputeCrossCaches(str(FIRST))).model
    assert {port.name for port in joined.inputs if "encoder.key" in port.name} == set()
    assert joined.weight_files == load(LATER).weight_files + load(FIRST).weight_files
    hidden = numpy.random.default_rng(0).standard_normal([2, 30, 32]).astype(numpy.float32)
    ids = numpy.array([[1, 5, 9], [4, 4, 2]])
    ours = outputs(joined.ov_model, ids, hidden)["logits"]
    theirs = outputs(load(FIRST).ov_model, ids, hidden)["logits"]
    numpy.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_keeps_caches_once():
    once = run(ComputeCrossCaches(str(FIRST)), MakeStateful(), KeepCrossCaches()).model
    caches = analyze_caches(once).of_kind("cross")
    assert [(cache.layer, cache.role) for cache in caches] == [
        (0, "cross_key"),
        (0, "cross_value"),
        (1, "cross_key"),
        (1, "cross_value"),
    ]
    assert {sink.get_variable_id() for sink in once.ov_model.get_sinks()} >= {
        f"past_key_values.{layer}.encoder.{role}" for layer in (0, 1) for role in ("key", "value")
    }
    for again in (ComputeCrossCaches(str(FIRST)), KeepCrossCaches()):
        assert not PassManager([again]).run(once).records[0].result.changed


def test_a_decoder_without_an_encoder_is_left_alone():
    model = load(export("llama", "ov-stateful"))
    assert not PassManager([ComputeCrossCaches("nowhere.onnx")]).run(model).records[0].result.changed
    assert not PassManager([KeepCrossCaches()]).run(model).records[0].result.changed


def test_refuses_what_does_not_fill_the_caches():
    with pytest.raises(PreconditionError, match=r"GP345: .* option source does not name it"):
        run(ComputeCrossCaches())
    with pytest.raises(PreconditionError, match=r"GP345: .* it has no output present.0.encoder.key"):
        run(ComputeCrossCaches(str(LATER)))
    with pytest.raises(PreconditionError, match="GP302"):
        run(ComputeCrossCaches(str(FIRST)), KeepCrossCaches())


def test_refuses_inputs_that_are_not_there():
    """The sizes of t5's caches come from its mask, which whisper's decoder has not."""
    other = export("t5", "ov-stateless") / "openvino_decoder_model.xml"
    result = PassManager([ComputeCrossCaches(str(other))])
    with pytest.raises(PreconditionError, match="GP345"):
        result.run(_without(load(LATER), "input_ids"))


def _without(model, name):
    """``model`` with another name for one of its inputs."""
    port = next(port for port in model.ov_model.inputs if name in port.get_names())
    port.set_names({"tokens"})
    port.get_node().set_friendly_name("tokens")
    model.mark_edited()
    return model
