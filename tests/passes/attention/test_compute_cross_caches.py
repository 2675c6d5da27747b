"""compute-cross-caches; what it makes generates in tests/cli/test_convert_encoder_decoder.py."""

import numpy
import pytest
from support.decode import compiled
from support.models import export

from graphpass import load
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError
from graphpass.passes.attention.compute_cross_caches import ComputeCrossCaches

FOLDER = export("whisper", "ov-stateless")
FIRST, LATER = FOLDER / "openvino_decoder_model.xml", FOLDER / "openvino_decoder_with_past_model.xml"


def run(source):
    return PassManager([ComputeCrossCaches(source)]).run(load(LATER)).model


def logits(model, ids, hidden, past=0):
    inputs = {port.any_name: port for port in model.inputs}
    feeds = {"input_ids": ids, "encoder_hidden_states": hidden}
    for name in inputs.keys() - feeds.keys():
        feeds[name] = numpy.zeros([len(ids), 2, past, 16], numpy.float32)
    return compiled(model)(feeds)["logits"]


def test_the_joined_decoder_computes_the_same_as_the_first_decoder():
    joined = run(str(FIRST))
    assert {port.name for port in joined.inputs if "encoder.key" in port.name} == set()
    assert joined.weight_files == load(LATER).weight_files + load(FIRST).weight_files
    hidden = numpy.random.default_rng(0).standard_normal([2, 30, 32]).astype(numpy.float32)
    ids = numpy.array([[1, 5, 9], [4, 4, 2]])
    expected = logits(load(FIRST).ov_model, ids, hidden)
    numpy.testing.assert_allclose(logits(joined.ov_model, ids, hidden), expected, atol=1e-5)


def test_a_decoder_without_an_encoder_is_unchanged():
    model = load(export("llama", "ov-stateful"))
    assert not PassManager([ComputeCrossCaches("nowhere.onnx")]).run(model).records[0].result.changed


@pytest.mark.parametrize(
    ("source", "message"),
    [("", "option source does not name it"), (str(LATER), "it has no output present.0.encoder.key")],
    ids=["no source", "the decoder of later steps"],
)
def test_a_source_without_cross_caches_is_refused(source, message):
    with pytest.raises(PreconditionError, match=f"GP345: .* {message}"):
        run(source)


def test_missing_inputs_of_the_source_are_refused():
    """The sizes of t5's caches come from its mask, which whisper's decoder has not."""
    model = load(LATER)
    port = next(port for port in model.ov_model.inputs if "input_ids" in port.get_names())
    port.set_names({"tokens"})
    port.get_node().set_friendly_name("tokens")
    model.mark_edited()
    other = export("t5", "ov-stateless") / "openvino_decoder_model.xml"
    with pytest.raises(PreconditionError, match="GP345"):
        PassManager([ComputeCrossCaches(str(other))]).run(model)
