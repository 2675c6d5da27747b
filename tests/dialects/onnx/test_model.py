import os
import shutil
import tempfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
import openvino
import pytest
from onnx import TensorProto, helper
from support.models import export, fixtures
from support.quick_cases import quick_files

from graphpass.dialects.onnx.model import OnnxModel, element_type
from graphpass.dialects.onnx.tensors import is_external, tensors
from graphpass.errors import ReadError, UnsupportedError
from graphpass.io import write_model
from graphpass.ir.types import Port
from graphpass.model_files import find_model

EXPORTS = sorted(path.relative_to(fixtures()) for path in fixtures().rglob("*.onnx"))


def external_model(folder: Path, data: bytes = bytes(4096), **reference: str) -> Path:
    """A model whose one weight, [32, 32] f32, lies in ``folder/weights.bin``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.bin").write_bytes(data)
    weight = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[32, 32], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": "weights.bin", "offset": "0", "length": "4096"} | reference).items():
        weight.external_data.add(key=key, value=value)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 32]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "weight"], ["y"])], "g", ports[:1], ports[1:], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("file", quick_files(EXPORTS), ids=str)
def test_reads_every_export(file):
    model = OnnxModel.load(fixtures() / file)
    session = onnxruntime.InferenceSession(str(fixtures() / file), providers=["CPUExecutionProvider"])
    assert [port.name for port in model.inputs] == [port.name for port in session.get_inputs()]
    assert [port.name for port in model.outputs] == [port.name for port in session.get_outputs()]
    assert [list(port.shape) for port in model.inputs] == [port.shape for port in session.get_inputs()]
    model.validate()
    assert model.clone().digest() == model.digest()
    assert model.proto.SerializeToString(deterministic=True) == (fixtures() / file).read_bytes()


def test_ports_have_names_shapes_and_types():
    model = OnnxModel.load(export("llama", "onnx") / "model.onnx")
    assert model.inputs[0] == Port("input_ids", ("batch_size", "sequence_length"), "i64")
    assert model.outputs[0].element_type == "f32"


def test_initializers_are_not_inputs():
    model = OnnxModel.load(export("llama", "onnx") / "model.onnx")
    names = [port.name for port in model.inputs]
    tensor = model.proto.graph.initializer[0]
    model.proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    assert [port.name for port in model.inputs] == names


@pytest.mark.parametrize("code", set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED})
def test_every_element_type_has_a_name(code):
    assert element_type(code) != "dynamic"


def test_element_type_names_are_openvinos():
    kinds = openvino.Type
    for code, kind in {
        TensorProto.FLOAT16: kinds.f16,
        TensorProto.BFLOAT16: kinds.bf16,
        TensorProto.BOOL: kinds.boolean,
        TensorProto.INT4: kinds.i4,
        TensorProto.STRING: kinds.string,
        TensorProto.FLOAT8E4M3FN: kinds.f8e4m3,
    }.items():
        assert kind.to_string() == element_type(code)


def test_external_data_is_not_loaded():
    model = OnnxModel.load(export("llama", "onnx-genai") / "model.onnx")
    assert any(is_external(tensor) for tensor in model.proto.graph.initializer)


def test_edits_of_a_clone_do_not_reach_the_original():
    model = OnnxModel.load(export("llama", "onnx") / "model.onnx")
    before, digest = model.proto.SerializeToString(deterministic=True), model.digest()
    copy = model.clone()
    copy.proto.graph.node[5].name = "edited"
    copy.mark_edited()
    assert copy.digest() != digest
    assert model.proto.SerializeToString(deterministic=True) == before
    assert not model.edited


@pytest.mark.parametrize("edit", ["attribute", "edge", "small constant", "large constant", "body"])
def test_digest_sees(edit):
    model = OnnxModel.load(export("t5", "onnx") / "decoder_model_merged.onnx")
    digest = model.digest()
    graph = model.proto.graph
    branch = next(node for node in graph.node if node.op_type == "If").attribute[0].g
    if edit == "attribute":
        next(a for node in branch.node for a in node.attribute if a.name == "axis").i += 1
    elif edit == "edge":
        next(node for node in branch.node if node.input).input[0] = graph.input[0].name
    elif edit == "small constant":
        constant = next(node for node in branch.node if node.op_type == "Constant").attribute[0].t
        constant.raw_data = bytes(byte ^ 1 for byte in constant.raw_data)
    elif edit == "large constant":
        tensor = next(tensor for tensor in graph.initializer if len(tensor.raw_data) > 4096)
        tensor.raw_data = tensor.raw_data[:-1] + bytes([tensor.raw_data[-1] ^ 1])
    else:
        del branch.node[-1]
    assert model.digest() != digest


def test_digest_does_not_depend_on_the_place_of_weights(tmp_path):
    path = external_model(tmp_path, numpy.arange(1024, dtype=numpy.float32).tobytes())
    inside = onnx.load(path)
    assert OnnxModel(inside).digest() == OnnxModel.load(path).digest()


def test_digest_reads_typed_fields():
    model = OnnxModel.load(export("llama", "onnx") / "model.onnx")
    tensor = next(tensor for tensor in model.proto.graph.initializer if len(tensor.raw_data) > 4096)
    values = numpy.frombuffer(tensor.raw_data, numpy.float32)
    tensor.ClearField("raw_data")
    tensor.float_data.extend(values)
    digest = model.digest()
    tensor.float_data[0] += 1
    assert model.digest() != digest


def test_validate_names_an_invalid_operator():
    model = OnnxModel.load(export("llama", "onnx") / "model.onnx")
    model.proto.graph.node[7].op_type = "Mull"
    with pytest.raises(UnsupportedError, match=r"GP310: .*model\.onnx is not valid ONNX: .*Mull"):
        model.validate()


def test_validate_sees_a_missing_producer():
    model = OnnxModel.load(export("llama", "onnx-genai") / "model.onnx")
    model.proto.graph.node[-1].input[0] = "nowhere"
    with pytest.raises(UnsupportedError, match="nowhere"):
        model.validate()


def test_on_disk_is_the_file_itself_until_edited():
    model = OnnxModel.load(export("llama", "onnx-genai") / "model.onnx")
    with model.on_disk() as path:
        assert path == model.path


def test_on_disk_of_an_edited_model():
    model = OnnxModel.load(export("llama", "onnx-genai") / "model.onnx")
    model.proto.graph.doc_string = "edited"
    model.mark_edited()
    with model.on_disk() as path:
        assert path != model.path
        assert (path.parent / "model.onnx.data").samefile(model.path.parent / "model.onnx.data")
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert openvino.Core().read_model(path).inputs
        assert OnnxModel.load(path).proto.graph.doc_string == "edited"
    assert not path.parent.exists()


def test_on_disk_copies_if_links_fail(monkeypatch):
    def unsupported(*args, **kwargs):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    model = OnnxModel.load(export("llama", "onnx-genai") / "model.onnx")
    model.mark_edited()
    with model.on_disk() as path:
        assert OnnxModel.load(path).digest() == model.digest()
        assert not (path.parent / "model.onnx.data").samefile(model.path.parent / "model.onnx.data")


def test_on_disk_of_a_model_in_memory():
    proto = onnx.load(export("llama", "onnx-genai") / "model.onnx")
    with OnnxModel(proto).on_disk() as path:
        assert onnx.load(path) == proto


def damaged(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello, this is a text and no model\n" * 20, "not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (onnx.ModelProto(ir_version=8, producer_name="x").SerializeToString(), "field graph is missing"),
        (onnx.ModelProto(ir_version=8, graph=onnx.GraphProto(name="g")).SerializeToString(), "field opset_import"),
    ],
    ids=["empty", "text", "lfs", "no graph", "no opset"],
)
def test_other_files_are_refused(tmp_path, content, words):
    with pytest.raises(ReadError, match=rf"GP104: .*bad\.onnx.* {words}"):
        OnnxModel.load(damaged(tmp_path, content))


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, kept):
    content = (export("llama", "onnx") / "model.onnx").read_bytes()
    with pytest.raises(ReadError, match=r"GP104: .*bad\.onnx"):
        OnnxModel.load(damaged(tmp_path, content[: int(len(content) * kept)]))


def test_a_damaged_name_is_refused(tmp_path):
    content = (export("llama", "onnx-genai") / "model.onnx").read_bytes()
    with pytest.raises(ReadError, match=r"GP104: .*bad\.onnx is damaged: a name"):
        OnnxModel.load(damaged(tmp_path, content.replace(b"input_layernorm", b"input_\xfflayernor", 1)))


def test_an_unreadable_path_is_refused(tmp_path):
    with pytest.raises(ReadError, match=r"GP104: .*cannot be read"):
        OnnxModel.load(tmp_path)


def test_external_attributes_are_read_from_their_file(tmp_path):
    """onnx.save writes them with convert_attribute."""
    value = onnx.numpy_helper.from_array(numpy.full(1, 7, numpy.float32))
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"], value=value)
    port = helper.make_tensor_value_info("shape", TensorProto.INT64, [2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])
    proto = helper.make_model(helper.make_graph([node], "g", [port], [result]))
    options = {"save_as_external_data": True, "size_threshold": 0, "convert_attribute": True, "location": "data"}
    onnx.save(proto, tmp_path / "model.onnx", **options)
    (filled,) = OnnxModel.load(tmp_path / "model.onnx").graph.of_op("ConstantOfShape")
    assert filled.attributes["value"] == 7


def test_missing_external_data_is_refused(tmp_path):
    shutil.copy(export("llama", "onnx-genai") / "model.onnx", tmp_path)
    with pytest.raises(ReadError, match=r"GP105: tensor 'model\..*model\.onnx\.data, which is missing"):
        OnnxModel.load(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ({"location": "/etc/passwd"}, "not a relative path"),
        ({"location": "../model/weights.bin"}, "not a relative path"),
        ({"location": "..\\weights.bin"}, "not a relative path"),
        ({"location": "C:\\weights.bin"}, "not a relative path"),
        ({"location": ""}, "not a relative path"),
        ({"location": "."}, "not a relative path"),
        ({"offset": "64"}, "bytes 64 to 4160 .* which has 4096"),
        ({"offset": "-1"}, "bytes -1"),
        ({"length": "many"}, "is not a number"),
    ],
    ids=str,
)
def test_bad_external_data_is_refused(tmp_path, reference, words):
    path = external_model(tmp_path / "model", **reference)
    with pytest.raises(ReadError, match=f"GP105: tensor 'weight' .*{words}"):
        OnnxModel.load(path)


def test_external_data_without_a_length_is_as_long_as_its_tensor(tmp_path):
    path = external_model(tmp_path, bytes(4095))
    proto = onnx.load(path, load_external_data=False)
    del proto.graph.initializer[0].external_data[2]
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ReadError, match=r"GP105: .*bytes 0 to 4096 .* has 4095"):
        OnnxModel.load(path)


def test_links_must_not_lead_out_of_the_folder(tmp_path):
    path = external_model(tmp_path / "model")
    shutil.move(tmp_path / "model" / "weights.bin", tmp_path / "secret")
    (tmp_path / "model" / "weights.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ReadError, match=r"GP105: tensor 'weight' .* outside the folder"):
        OnnxModel.load(path)


def test_links_into_the_folder_of_a_linked_model(tmp_path):
    """As in the cache of Hugging Face: snapshots hold links to blobs."""
    real = external_model(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for name in ("model.onnx", "weights.bin"):
        (tmp_path / "snapshot" / name).symlink_to(real.parent / name)
    assert OnnxModel.load(tmp_path / "snapshot" / "model.onnx").digest() == OnnxModel.load(real).digest()


def test_external_data_of_bodies_and_attributes_is_checked(tmp_path):
    path = external_model(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    weight = proto.graph.initializer.pop()
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["weight"], value=weight))
    path.write_bytes(proto.SerializeToString())
    model = OnnxModel.load(path)
    assert [tensor.name for tensor in tensors(model.proto)] == ["weight"]
    model.validate()
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ReadError, match=r"GP105: tensor 'weight'"):
        OnnxModel.load(path)


def test_external_data_of_a_model_without_a_path(tmp_path):
    proto = onnx.load(external_model(tmp_path), load_external_data=False)
    with pytest.raises(ReadError, match=r"GP105: .*the model has no folder"):
        OnnxModel(proto).digest()


def test_writing_beside_a_scratch_copy_keeps_the_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = OnnxModel.load(find_model(export("llama", "onnx")))
    model.mark_edited()
    with model.on_disk() as path:
        assert path.is_relative_to(tmp_path)
        write_model(model, tmp_path / "written.onnx")
        assert path.exists()
