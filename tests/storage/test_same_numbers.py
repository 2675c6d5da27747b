"""What graphpass writes computes bit for bit what OpenVINO's own way of writing gives."""

import shutil
from pathlib import Path

import numpy
import onnx
import openvino
import pytest
from support.decode import Decoder, compiled
from support.models import export, reference

from graphpass.manager import PassManager
from graphpass.model import load
from graphpass.onnx_model import OnnxModel
from graphpass.pipeline import parse
from graphpass.runtime import open_session
from graphpass.storage.write import write_model

STATEFUL = "fuse-attention,make-stateful"


def with_external_data(source: Path, folder: Path, shards: int = 1) -> Path:
    """A copy of an ONNX model whose large tensors lie in files of their own."""
    folder.mkdir()
    proto = onnx.load(source)
    large = [tensor for tensor in proto.graph.initializer if len(tensor.raw_data) > 1024]
    for number, tensor in enumerate(large):
        name = f"weights-{number % shards}.bin"
        with (folder / name).open("ab") as stream:
            for key, value in (("location", name), ("offset", stream.tell()), ("length", len(tensor.raw_data))):
                tensor.external_data.add(key=key, value=str(value))
            stream.write(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def logits(file: Path) -> numpy.ndarray:
    decoder = Decoder(compiled(openvino.Core().read_model(file)).create_infer_request())
    ids = numpy.array([reference("llama")["prompt_ids"]])
    return numpy.stack([decoder.step(ids), *(decoder.step(numpy.array([[token]])) for token in (5, 9, 3))])


@pytest.mark.parametrize("weights", ["copy", "share"])
@pytest.mark.parametrize("case", ["ir", "ir-f16", "onnx", "onnx-external", "onnx-shards"])
def test_to_stateful_ir(tmp_path, case, weights):
    if case.startswith("ir"):
        source = export("llama", "ov-stateful-fp16" if case == "ir-f16" else "ov-stateless") / "openvino_model.xml"
        shutil.copytree(source.parent, tmp_path / "in")
        source, text = tmp_path / "in" / source.name, "" if case == "ir-f16" else STATEFUL
    else:
        source, text = export("llama", "onnx") / "model.onnx", f"to-openvino,{STATEFUL}"
        if case != "onnx":
            source = with_external_data(source, tmp_path / "in", 3 if case == "onnx-shards" else 1)
    if weights == "share" and case in {"onnx", "onnx-shards"}:
        pytest.skip("weights that lie in one file can be shared")
    model = PassManager(parse(text) if text else ()).run(load(source)).model
    openvino.save_model(model.ov_model, tmp_path / "slow.xml", compress_to_fp16=False)
    written = write_model(model, tmp_path / "out" / "fast.xml", weights=weights)
    large = sum(op.get_byte_size() for op in model.ov_model.get_ops() if op.get_type_name() == "Constant")
    assert written.appended < (large * 1.1 if case == "onnx" else 20_000)
    assert numpy.array_equal(logits(tmp_path / "out" / "fast.xml"), logits(tmp_path / "slow.xml"))
    again = write_model(load(tmp_path / "out" / "fast.xml"), tmp_path / "again" / "fast.xml")
    assert again.appended == 0
    assert (tmp_path / "again" / "fast.bin").stat().st_size <= (tmp_path / "out" / "fast.bin").stat().st_size


@pytest.mark.parametrize("weights", ["copy", "share"])
def test_onnx_to_onnx(tmp_path, weights):
    source = with_external_data(export("llama", "onnx") / "model.onnx", tmp_path / "in", 2)
    model = load(source)
    assert isinstance(model, OnnxModel)
    model.proto.producer_name = "edited"
    model.mark_edited()
    write_model(model, tmp_path / "out" / "model.onnx", weights=weights)
    for name in ("weights-0.bin", "weights-1.bin"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "in" / name).read_bytes()
        assert (tmp_path / "out" / name).samefile(tmp_path / "in" / name) == (weights == "share")
    ids = [reference("llama")["prompt_ids"]]
    before, after = (open_session(load(file)).prefill(ids) for file in (source, tmp_path / "out" / "model.onnx"))
    assert numpy.array_equal(before, after)
