"""What graphpass writes computes bit for bit what OpenVINO's own way of writing gives."""

import shutil
from pathlib import Path

import numpy
import onnx
import openvino
import openvino_genai
import pytest
from support.decode import Decoder, compiled
from support.models import export, reference

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.io import load, write_model
from graphpass.runtime import open_session

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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weights", ["copy", "share"])
@pytest.mark.parametrize("case", ["ir", "ir-f16", "onnx", "onnx-external", "onnx-shards"])
def test_stateful_ir_computes_bit_for_bit(tmp_path, case, weights):
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
def test_onnx_computes_bit_for_bit(tmp_path, weights):
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


def generated(folder: Path) -> tuple[list[list[int]], list[float]]:
    """What openvino.genai generates with three beams, and their scores: sums of the logits' logarithms."""
    precise = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND="SDPA", **precise)
    ids = numpy.array([reference("llama")["prompt_ids"]])
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
    found = pipeline.generate(inputs, max_new_tokens=8, num_beams=3, num_return_sequences=3, ignore_eos=True)
    return [list(tokens) for tokens in found.tokens], list(found.scores)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weights", ["copy", "share"])
def test_openvino_genai_generates_bit_for_bit(tmp_path, weights):
    source = with_external_data(export("llama", "onnx") / "model.onnx", tmp_path / "in")
    model = PassManager(parse(f"to-openvino,{STATEFUL}")).run(load(source)).model
    for name in ("slow", "fast"):
        others = shutil.ignore_patterns("openvino_model.*")
        shutil.copytree(export("llama", "ov-stateful"), tmp_path / name, ignore=others)
    openvino.save_model(model.ov_model, tmp_path / "slow" / "openvino_model.xml", compress_to_fp16=False)
    write_model(model, tmp_path / "fast" / "openvino_model.xml", weights=weights)
    assert generated(tmp_path / "fast") == generated(tmp_path / "slow")


def test_onnx_runtime_computes_the_same_as_after_onnx_save(tmp_path):
    source = with_external_data(export("llama", "onnx") / "model.onnx", tmp_path / "in")
    write_model(load(source), tmp_path / "fast" / "model.onnx")
    (tmp_path / "slow").mkdir()
    onnx.save(onnx.load(source), tmp_path / "slow" / "model.onnx", save_as_external_data=True, location="data")
    found = []
    for name in ("slow", "fast"):
        session = open_session(load(tmp_path / name / "model.onnx"))
        steps = [session.prefill([reference("llama")["prompt_ids"]])]
        steps += [session.step(numpy.array([[token]])) for token in (5, 9, 3)]
        found.append(numpy.concatenate(steps, axis=1))
    assert numpy.array_equal(*found)
