import os
import shutil
from pathlib import Path

import numpy
import openvino
import openvino.opset13 as ops
import pytest
from support.folders import folder_contents
from support.models import export

from graphpass.dialects.onnx import files as onnx_files, model as onnx_model
from graphpass.dialects.openvino import files as openvino_files
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import ReadError, UsageError
from graphpass.io import load, write_model
from graphpass.model_files import find_model
from graphpass.storage import bin_file

TYPES = ["f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "i4", "u4", "u1", "nf4", "f8e4m3", "f8e5m2", "f4e2m1"]
TYPES += ["u2", "u3", "u6", "f8e8m0", "boolean"]


def constant(kind: str, seed: int, shape: tuple[int, ...] = (64, 64)) -> openvino.op.Constant:
    """Random bytes as a Constant of any element type."""
    tensor = openvino.Tensor(getattr(openvino.Type, kind), openvino.Shape(shape))
    data = numpy.random.default_rng(seed).integers(0, 2 if kind == "boolean" else 120, tensor.byte_size, numpy.uint8)
    numpy.ravel(tensor.data).view(numpy.uint8)[:] = data
    return openvino.op.Constant(tensor, shared_memory=False)


def of_constants(*constants: openvino.op.Constant) -> openvino.Model:
    results = []
    for number, made in enumerate(constants):
        made.set_friendly_name(f"weight {number}")
        result = ops.result(made)
        made.output(0).set_names({f"out {number}"})
        results.append(result)
    return openvino.Model(results, [], "constants")


def held(file: Path) -> dict[str, bytes]:
    """Return the contents of the Constants of an IR, by name."""
    read = openvino.Core().read_model(file)
    return {
        op.get_friendly_name(): repr(op.get_tensor_view().str_data.tolist()).encode()
        if op.get_element_type() == openvino.Type.string
        else numpy.ravel(op.data).view(numpy.uint8).tobytes()
        for op in read.get_ops()
        if op.get_type_name() == "Constant"
    }


def test_every_element_type_is_written_as_by_openvino(tmp_path):
    weights = [constant(kind, number) for number, kind in enumerate(TYPES)]
    slow, fast, again = (tmp_path / name / "m.xml" for name in ("slow", "fast", "again"))
    slow.parent.mkdir()
    openvino.serialize(of_constants(*weights), str(slow))
    write_model(OpenVINOModel(of_constants(*weights)), fast)
    write_model(load(fast), again)
    assert held(fast) == held(slow)
    assert len(held(slow)) == len(TYPES)
    assert folder_contents(again.parent) == folder_contents(fast.parent)
    write_model(load(slow), tmp_path / "m.xml")
    openvino.serialize(load(slow).ov_model, str(tmp_path / "slow.xml"))
    assert (tmp_path / "m.xml").read_bytes() == (tmp_path / "slow.xml").read_bytes()
    assert (tmp_path / "m.bin").read_bytes() == slow.with_suffix(".bin").read_bytes()


def test_strings_empty_and_equal_constants(tmp_path):
    words = openvino.op.Constant(openvino.Tensor(numpy.array(["a word", "", "ö" * 4000])), shared_memory=False)
    empty = openvino.op.Constant(openvino.Tensor(openvino.Type.f32, openvino.Shape((0, 4))))
    twice = [constant("f32", 1), constant("f32", 1)]
    model = of_constants(words, empty, *twice, constant("f32", 2))
    write_model(OpenVINOModel(model), tmp_path / "1" / "m.xml")
    write_model(load(tmp_path / "1"), tmp_path / "2" / "m.xml")
    openvino.serialize(model, str(tmp_path / "slow.xml"))
    assert held(tmp_path / "1" / "m.xml") == held(tmp_path / "slow.xml") == held(tmp_path / "2" / "m.xml")
    assert (tmp_path / "1" / "m.bin").stat().st_size < 2 * 64 * 64 * 4 + 12_000
    assert folder_contents(tmp_path / "1") == folder_contents(tmp_path / "2")


@pytest.mark.parametrize("weights", ["copy", "share"])
def test_only_changed_weights_are_written(tmp_path, weights):
    shutil.copytree(export("llama", "ov-stateful"), tmp_path / "in")
    model = load(tmp_path / "in" / "openvino_model.xml")
    before = folder_contents(tmp_path / "in")
    old = next(op for op in model.ov_model.get_ops() if op.get_type_name() == "Constant" and op.get_byte_size() > 9999)
    made = openvino.op.Constant(old.data * 2)
    made.set_friendly_name(old.get_friendly_name())
    for target in old.output(0).get_target_inputs():
        target.replace_source_output(made.output(0))
    for number in ("1", "2"):
        written = write_model(model, tmp_path / number / "m.xml", weights=weights)
        if (weights, number) == ("share", "2"):  # it stands there already
            assert written.appended == 0
        else:
            assert old.get_byte_size() <= written.appended < old.get_byte_size() + 64
        assert load(tmp_path / number / "m.xml").digest() == model.digest()
    if weights == "share":
        assert (tmp_path / "2" / "m.bin").samefile(tmp_path / "in" / "openvino_model.bin")
        grown = (tmp_path / "in" / "openvino_model.bin").read_bytes()
        assert grown.startswith(before["openvino_model.bin"])
    else:
        assert folder_contents(tmp_path / "in") == before
        assert folder_contents(tmp_path / "1") == folder_contents(tmp_path / "2")
    again = write_model(load(tmp_path / "2" / "m.xml"), tmp_path / "3" / "m.xml")
    assert again.appended == 0
    assert load(tmp_path / "3" / "m.xml").digest() == model.digest()


def with_scaled_weights(file: Path, *factors: float) -> OpenVINOModel:
    """A model whose first large weights are other ones."""
    model = load(file)
    large = (op for op in model.ov_model.get_ordered_ops() if op.get_type_name() == "Constant")
    for op, factor in zip((op for op in large if op.get_byte_size() > 9999), factors, strict=False):
        made = openvino.op.Constant(op.data * numpy.float32(factor))
        made.set_friendly_name(op.get_friendly_name())
        for target in op.output(0).get_target_inputs():
            target.replace_source_output(made.output(0))
    model.mark_edited()
    return model


@pytest.mark.slow
def test_the_same_weights_are_appended_once(tmp_path):
    shutil.copytree(export("llama", "ov-stateful"), tmp_path / "in")
    source = tmp_path / "in" / "openvino_model.xml"
    sizes = []
    for name, factors in [("a", (2, 3)), ("b", (4,)), ("a", (2, 3)), ("b", (4,)), ("c", (0, 3)), ("c", (0, 3))]:
        model = with_scaled_weights(source, *factors)
        write_model(model, tmp_path / name / "m.xml", weights="share")
        assert load(tmp_path / name / "m.xml").digest() == model.digest()
        sizes.append(source.with_suffix(".bin").stat().st_size)
    assert sizes[0] < sizes[1] == sizes[2] == sizes[3] < sizes[4] == sizes[5]
    for name, factors in [("a", (2, 3)), ("b", (4,)), ("c", (0, 3))]:
        write_model(with_scaled_weights(source, *factors), tmp_path / "copy" / "m.xml")
        assert held(tmp_path / name / "m.xml") == held(tmp_path / "copy" / "m.xml")


def test_appending_twice_to_one_file_reports_the_change(tmp_path, monkeypatch):
    shutil.copytree(export("llama", "ov-stateful"), tmp_path / "in")
    source = tmp_path / "in" / "openvino_model.xml"
    first, second = with_scaled_weights(source, 2), with_scaled_weights(source, 3)
    lock = bin_file.lock

    def overtaken(path, stack, *, wait=False):
        monkeypatch.undo()
        write_model(first, tmp_path / "1" / "m.xml", weights="share")
        return lock(path, stack, wait=wait)

    monkeypatch.setattr(bin_file, "lock", overtaken)
    with pytest.raises(ReadError, match="GP110"):
        write_model(second, tmp_path / "2" / "m.xml", weights="share")
    assert not (tmp_path / "2").exists()
    assert load(tmp_path / "1" / "m.xml").digest() == first.digest()


def test_unused_weights_are_left_out(tmp_path):
    weights = [constant("f32", number, (512, 512)) for number in range(3)]
    openvino.serialize(of_constants(*weights), str(tmp_path / "m.xml"))
    read = load(tmp_path / "m.xml").ov_model
    read.remove_result(read.get_results()[1])
    model = OpenVINOModel(read, tmp_path / "m.xml")
    model.weight_files = load(tmp_path / "m.xml").weight_files
    write_model(model, tmp_path / "out" / "m.xml")
    assert (tmp_path / "out" / "m.bin").stat().st_size == 2 * 2**20
    expected = held(tmp_path / "m.xml")
    del expected["weight 1"]
    assert held(tmp_path / "out" / "m.xml") == expected


@pytest.mark.parametrize("weights", ["copy", "share"])
@pytest.mark.parametrize("how", ["edited", "replaced"])
def test_changed_weights_are_refused(tmp_path, how, weights):
    shutil.copytree(export("llama", "ov-stateful"), tmp_path / "in")
    data = tmp_path / "in" / "openvino_model.bin"
    model = load(tmp_path / "in" / "openvino_model.xml")
    if how == "edited":
        with data.open("ab") as stream:
            stream.write(b"more")
    else:
        shutil.copyfile(data, tmp_path / "other")
        (tmp_path / "other").rename(data)
    with pytest.raises(ReadError, match=r"GP110: .*openvino_model\.bin was replaced, edited or removed"):
        write_model(model, tmp_path / "out" / "m.xml", weights=weights)
    assert not (tmp_path / "out").exists()


def replace(file: Path) -> None:
    shutil.copyfile(file, file.parent / "other")
    (file.parent / "other").rename(file)


def test_an_input_replaced_while_it_is_copied(tmp_path, monkeypatch):
    shutil.copytree(export("llama", "ov-stateful"), tmp_path / "in")
    model = load(tmp_path / "in" / "openvino_model.xml")
    write = openvino_files.BinFile.write

    def replaced(self, path):
        write(self, path)
        replace(tmp_path / "in" / "openvino_model.bin")

    monkeypatch.setattr(openvino_files.BinFile, "write", replaced)
    with pytest.raises(ReadError, match="GP110"):
        write_model(model, tmp_path / "out" / "m.xml")
    assert not (tmp_path / "out").exists()


def test_an_input_replaced_before_it_is_shared(tmp_path, monkeypatch):
    """Nothing is appended to the file that stands there now."""
    shutil.copytree(export("llama", "ov-stateless"), tmp_path / "in")
    model = PassManager(parse("fuse-attention,make-stateful")).run(load(tmp_path / "in")).model
    link = os.link

    def replaced(source, target, **options):
        if str(target).endswith(".bin"):
            replace(tmp_path / "in" / "openvino_model.bin")
        link(source, target, **options)

    before = (tmp_path / "in" / "openvino_model.bin").read_bytes()
    monkeypatch.setattr(os, "link", replaced)
    with pytest.raises(ReadError, match="GP110"):
        write_model(model, tmp_path / "out" / "m.xml", weights="share")
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "in" / "openvino_model.bin").read_bytes() == before


@pytest.mark.parametrize(
    ("variant", "changed"), [("ov-stateful", "graph"), ("ov-stateful", "weights"), ("onnx-genai", "graph")]
)
def test_an_input_replaced_while_it_is_read(tmp_path, monkeypatch, variant, changed):
    shutil.copytree(export("llama", variant), tmp_path / "in")
    graph = find_model(tmp_path / "in")
    reads = openvino.Core.read_model

    def replaced(*arguments):
        replace(graph if changed == "graph" else graph.with_suffix(".bin"))
        return reads(*arguments)

    if variant == "ov-stateful":
        monkeypatch.setattr(openvino.Core, "read_model", replaced)
    else:  # of its weights nothing is read then
        found = onnx_model.external_files
        monkeypatch.setattr(onnx_model, "external_files", lambda *given: replace(graph) or found(*given))
    with pytest.raises(ReadError, match="GP110"):
        load(graph)


@pytest.mark.parametrize("weights", ["copy", "share"])
def test_an_onnx_input_replaced_while_it_is_copied(tmp_path, monkeypatch, weights):
    shutil.copytree(export("llama", "onnx-genai"), tmp_path / "in")
    model = load(tmp_path / "in")
    stage = onnx_files.stage_onnx

    def replaced(*arguments, **options):
        replace(tmp_path / "in" / "model.onnx.data")
        stage(*arguments, **options)

    monkeypatch.setattr(onnx_files, "stage_onnx", replaced)
    with pytest.raises(ReadError, match="GP110"):
        write_model(model, tmp_path / "out" / "m.onnx", weights=weights)
    assert not (tmp_path / "out").exists()


def test_weights_in_memory_cannot_be_shared(tmp_path):
    with pytest.raises(UsageError, match=r"GP230: .* these are in no file"):
        write_model(OpenVINOModel(of_constants(constant("f32", 1))), tmp_path / "out" / "m.xml", weights="share")
    assert folder_contents(tmp_path) == {}
