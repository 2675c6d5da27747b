"""fill-cross-caches; what it makes generates in tests/targets/ort/test_genai_whisper.py."""

import shutil

import numpy
import onnx
import onnxruntime
import pytest
from support.models import export
from support.sequence_to_sequence import encoder_input

from graphpass import load
from graphpass.dialects.onnx.tensors import external_files
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError
from graphpass.passes.attention.fill_cross_caches import FillCrossCaches

FOLDER = export("whisper", "onnx")
CACHES = [f"present.{layer}.encoder.{role}" for layer in (0, 1) for role in ("key", "value")]


def run(source, encoder="encoder_model.onnx", folder=FOLDER):
    return PassManager([FillCrossCaches(str(folder / source) if source else "")]).run(load(folder / encoder))


def computed(model, feeds):
    with model.on_disk() as file:
        session = onnxruntime.InferenceSession(file)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, feeds), strict=True))


@pytest.mark.parametrize("source", ["decoder_model.onnx", "decoder_model_merged.onnx"])
def test_results_equal_the_first_decoder(source):
    model = run(source).model
    model.validate()
    assert [port.name for port in model.outputs] == ["last_hidden_state", *CACHES]
    assert {port.shape for port in model.outputs[1:]} == {("batch_size", 2, 1500, 16)}
    one = encoder_input("whisper")["input_features"]
    made = computed(model, {"input_features": numpy.concatenate([one, one * 0.7])})
    hidden = made["last_hidden_state"]
    wanted = computed(
        load(FOLDER / "decoder_model.onnx"), {"input_ids": [[1, 5], [3, 2]], "encoder_hidden_states": hidden}
    )
    for name in CACHES:
        numpy.testing.assert_allclose(made[name], wanted[name], atol=1e-6)


def test_names_of_dimensions_do_not_count(tmp_path):
    """Rows of tokens and of encoder states are as many, whatever they are called."""
    for file in ("encoder_model.onnx", "decoder_model.onnx"):
        proto = onnx.load(FOLDER / file)
        for number, info in enumerate((*proto.graph.input, *proto.graph.output, *proto.graph.value_info)):
            for place, size in enumerate(info.type.tensor_type.shape.dim):
                if size.dim_param:
                    size.dim_param = f"size_{number}_{place}"
        onnx.save(proto, tmp_path / file)
    record = run("decoder_model.onnx", folder=tmp_path).records[0]
    assert record.result.statistics == {"cross caches": 4, "operators": 14}


def test_moved_weights_get_their_own_data_file(tmp_path):
    for file in ("encoder_model.onnx", "decoder_model.onnx"):
        onnx.save(
            onnx.load(FOLDER / file),
            tmp_path / file,
            save_as_external_data=True,
            location=f"{file}_data",
            size_threshold=0,
        )
    model = run("decoder_model.onnx", folder=tmp_path).model
    own, new = sorted(external_files(model.proto, model.path), key=lambda name: name.startswith("cross"))
    assert own == "encoder_model.onnx_data"
    # In pages: two layers' keys, values, and biases of values.
    assert external_files(model.proto, model.path)[new].stat().st_size == 6 * 4096
    feeds = encoder_input("whisper")
    made, wanted = computed(model, feeds), computed(run("decoder_model.onnx").model, feeds)
    assert all(numpy.array_equal(made[name], wanted[name]) for name in wanted)


def test_a_second_run_changes_nothing():
    once = run("decoder_model.onnx").model
    again = PassManager([FillCrossCaches()]).run(once).records[0].result
    assert not again.changed


def test_a_decoder_without_cross_caches_is_refused(tmp_path):
    with pytest.raises(PreconditionError, match=r"GP345: .* option source does not name it"):
        run("")
    with pytest.raises(PreconditionError, match=r"GP345: .* depends on encoder states only"):
        run("decoder_with_past_model.onnx")
    proto = onnx.load(FOLDER / "encoder_model.onnx")
    proto.graph.node.add(op_type="Neg", input=["last_hidden_state"], output=["other"])
    proto.graph.output.add().CopyFrom(proto.graph.output[0])
    proto.graph.output[1].name = "other"
    onnx.save(proto, tmp_path / "encoder_model.onnx")
    with pytest.raises(PreconditionError, match=r"GP345: .* expected 1 output .* of the encoder, got 2"):
        run("decoder_model.onnx", folder=tmp_path)
    shutil.copy(FOLDER / "encoder_model.onnx", tmp_path)
    with pytest.raises(PreconditionError, match=r"GP345: .* is not in the folder of"):
        PassManager([FillCrossCaches(str(FOLDER / "decoder_model.onnx"))]).run(load(tmp_path / "encoder_model.onnx"))
    proto = onnx.load(FOLDER / "decoder_model.onnx")
    proto.opset_import[0].version = 17
    onnx.save(proto, tmp_path / "decoder_model.onnx")
    with pytest.raises(PreconditionError, match=r"GP345: .* opset 18, but decoder_model.onnx has 17"):
        run("decoder_model.onnx", folder=tmp_path)
