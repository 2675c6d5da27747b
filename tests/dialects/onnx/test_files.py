"""Graph files, and large tensors beside them."""

import numpy
import onnx
import pytest
from onnx import numpy_helper

import graphpass
from graphpass.dialects.onnx.files import referring, stage_onnx
from graphpass.errors import WriteError
from graphpass.testing import parse_model

TEXT = """%x = Parameter : f32[n, 64]
%first = Constant : f32[64, 64]
%second = Constant : f32[64, 64]
%a = MatMul(%x, %first)
%b = MatMul(%a, %second)
%c = Add(%b, 1.0)
Result(%c) {name=y}"""


def stored(folder, name="weights.data"):
    folder.mkdir()
    proto = parse_model(TEXT).proto
    onnx.save(proto, folder / "model.onnx", save_as_external_data=True, location=name, size_threshold=1024)
    return onnx.load(folder / "model.onnx", load_external_data=False), folder / "model.onnx"


def test_small_models_are_one_file(tmp_path):
    model = parse_model(TEXT)
    stage_onnx(model.proto, None, tmp_path, "m.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]
    assert graphpass.load(tmp_path / "m.onnx").digest() == model.digest()


def test_weights_move_to_a_data_file_above_the_limit(tmp_path):
    model = parse_model(TEXT)
    before = model.proto.SerializeToString(deterministic=True)
    stage_onnx(model.proto, None, tmp_path, "m.onnx", limit=8192)
    assert model.proto.SerializeToString(deterministic=True) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    offsets = [
        int(entry.value)
        for tensor in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
        for entry in tensor.external_data
        if entry.key == "offset"
    ]
    assert len(offsets) == 2
    assert all(offset % 4096 == 0 for offset in offsets)
    assert graphpass.load(tmp_path / "m.onnx").digest() == model.digest()


def test_models_over_the_limit_without_weights_are_refused(tmp_path):
    with pytest.raises(WriteError, match="bytes without its weights; the limit is 64") as error:
        stage_onnx(parse_model(TEXT).proto, None, tmp_path, "m.onnx", limit=64)
    assert error.value.id == "GP503"


@pytest.mark.parametrize("link", [False, True])
def test_data_files_are_copied_or_linked(tmp_path, link):
    proto, source = stored(tmp_path / "in")
    out = tmp_path / "out"
    out.mkdir()
    stage_onnx(proto, source, out, "m.onnx", link=link)
    assert (out / "weights.data").samefile(tmp_path / "in" / "weights.data") is link
    assert graphpass.load(out / "m.onnx").digest() == graphpass.load(source).digest()


def test_another_file_of_the_same_name_is_kept(tmp_path):
    proto, source = stored(tmp_path / "in")
    out = tmp_path / "out"
    out.mkdir()
    (out / "weights.data").write_bytes(b"other")
    with pytest.raises(FileExistsError, match="with this name and other content exists"):
        stage_onnx(proto, source, out, "m.onnx")
    (out / "weights.data").write_bytes((tmp_path / "in" / "weights.data").read_bytes())
    stage_onnx(proto, source, out, "m.onnx")


def test_a_reference_has_the_name_type_and_shape_of_the_tensor():
    tensor = numpy_helper.from_array(numpy.ones((2, 3), numpy.float16), "w")
    tensor.doc_string = "weights"
    made = referring(tensor, "m.data", 4096, 12)
    assert (made.name, made.data_type, list(made.dims), made.doc_string) == ("w", 10, [2, 3], "weights")
    assert {entry.key: entry.value for entry in made.external_data} == {
        "location": "m.data",
        "offset": "4096",
        "length": "12",
    }
    assert not made.raw_data
