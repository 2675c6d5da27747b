"""The manifest beside a result, and work that is skipped because of it."""

import json
import os
import shutil
from hashlib import sha256

import openvino_genai
import pytest
from support.commands import in_process
from support.folders import folder_contents
from support.models import export, reference

from graphpass.artifacts.manifest import write_manifest
from graphpass.engine.manager import PassManager
from graphpass.model_files import find_model
from graphpass.storage.weight_file import WeightFile

pytestmark = pytest.mark.usefixtures("cache_folder")


@pytest.fixture
def source(tmp_path):
    return shutil.copytree(export("llama", "ov-stateless"), tmp_path / "in")


OPTIONS = ["--target", "cpu", "--no-verify", "--if-changed"]


def convert(capfd, source, out, *options):
    return in_process(capfd, "convert", source, "-o", out, *OPTIONS, *options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The result of one conversion, which tests copy."""
    from graphpass.cli.main import main

    out = tmp_path_factory.mktemp("made") / "out"
    assert main(["--quiet", "convert", str(export("llama", "ov-stateless")), "-o", str(out), *OPTIONS]) == 0
    return out


def test_the_manifest_lists_work_and_files(made):
    told = json.loads((made / "graphpass.json").read_bytes())
    assert told["input"]["file"] == "openvino_model.xml"
    assert set(told["versions"]) == {"graphpass", "numpy", "onnx", "onnxruntime", "openvino"}
    assert told["pipeline"].startswith("change-precision,fuse-attention,")
    assert told["options"]["target"] == "cpu"
    assert {"pass": "make-stateful", "changed": True, "did": {"variables": 4, "kv": 4, "linear": 0}} in told["passes"]
    assert set(told["output"]) == set(folder_contents(made)) - {"graphpass.json"}
    assert find_model(made).name == "openvino_model.xml"


def test_manifests_are_deterministic(capfd, tmp_path, source, made):
    assert convert(capfd, source, tmp_path / "out").code == 0
    assert folder_contents(tmp_path / "out") == folder_contents(made)


def files(folder):
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in folder.iterdir()}


@pytest.mark.parametrize("variant", ["ov-stateless", "onnx", "onnx-genai"])
def test_the_same_work_is_skipped(capfd, tmp_path, monkeypatch, variant):
    source, out = export("llama", variant), tmp_path / "out"
    assert "not up to date: there is no earlier result\n" in convert(capfd, source, out).err
    before = files(out)
    monkeypatch.setattr(PassManager, "run", lambda *_: pytest.fail("it ran"))
    done = convert(capfd, source, out)
    said = "is up to date: the same input, pipeline, options and versions; nothing was done"
    assert done == (0, f"{out}/openvino_model.xml {said}\n", "")
    assert convert(capfd, source, out, "-q") == (0, f"{out}/openvino_model.xml\n", "")
    assert files(out) == before


def edit_weights(source, out):
    """One bit, with size and time as they were."""
    path = source / "openvino_model.bin"
    status, content = path.stat(), bytearray(path.read_bytes())
    content[200_000] ^= 1
    (source / "new").write_bytes(content)
    os.utime(source / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(source / "new", path)


def edit_graph(source, out):
    path = source / "openvino_model.xml"
    path.write_text(path.read_text().replace('name="Model', 'name="Other'))


def edit_tokenizer(source, out):
    (source / "tokenizer.json").write_text("{}")


def edit_result(source, out):
    with (out / "openvino_model.xml").open("a") as stream:
        stream.write("\n")


def cut_result(source, out):
    os.truncate(out / "openvino_model.bin", 100)


def drop_result(source, out):
    (out / "config.json").unlink()


def drop_manifest(source, out):
    (out / "graphpass.json").unlink()


def damage_manifest(source, out):
    (out / "graphpass.json").write_text('{"input": []}')


def lead_elsewhere(source, out):
    path = out / "graphpass.json"
    path.write_text(path.read_text().replace('"config.json": {', '"/proc/self/mem": {'))


def other_version(source, out):
    path = out / "graphpass.json"
    path.write_text(path.read_text().replace('"openvino": "20', '"openvino": "19'))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (edit_weights, "input weights changed"),
        (edit_graph, "input sha256 changed"),
        (edit_tokenizer, "input beside tokenizer.json changed"),
        (edit_result, "openvino_model.xml changed since the result was written"),
        (cut_result, "openvino_model.bin changed since the result was written"),
        (drop_result, "config.json is missing"),
        (drop_manifest, "there is no earlier result"),
        (damage_manifest, "graphpass.json is not a valid manifest"),
        (lead_elsewhere, "graphpass.json is not a valid manifest"),
        (other_version, 'versions openvino was "1926'),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_other_work_is_done(capfd, tmp_path, source, made, change, reason):
    out = shutil.copytree(made, tmp_path / "out")
    change(source, out)
    done = convert(capfd, source, out)
    assert (done.code, done.err.startswith(f"not up to date: {reason}")) == (0, True), done.err
    assert "written to" in done.out
    assert "is up to date" in convert(capfd, source, out).out


def test_other_options_are_other_work(capfd, tmp_path, source, made):
    out = shutil.copytree(made, tmp_path / "out")
    done = convert(capfd, source, out, "--target", "cpu{cache=reorder}")
    assert done.err.startswith('not up to date: options target was "cpu" and is "cpu{cache=reorder}"\n')
    done = convert(capfd, source, out)
    assert done.err.startswith('not up to date: options target was "cpu{cache=reorder}" and is "cpu"\n')


def test_a_plain_conversion_is_found_up_to_date(capfd, tmp_path, source, monkeypatch):
    """Its manifest holds no digest of the weights; their sizes and times are remembered in the cache folder."""
    plain = ["convert", source, "-o", tmp_path / "out", "--target", "cpu", "--no-verify"]
    os.utime(source / "openvino_model.bin", (1, 1))
    assert in_process(capfd, *plain).code == 0
    assert "is up to date" in convert(capfd, source, tmp_path / "out").out
    os.utime(source / "openvino_model.bin", (2, 2))
    again = "not up to date: the content of the weights was not recorded; --if-changed records it\n"
    assert convert(capfd, source, tmp_path / "out").err.startswith(again)
    assert "is up to date" in convert(capfd, source, tmp_path / "out").out
    assert in_process(capfd, *plain).code == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other-cache"))
    assert convert(capfd, source, tmp_path / "out").err.startswith(again)


def test_appending_to_shared_weights_keeps_their_digest(capfd, tmp_path, source):
    assert convert(capfd, source, tmp_path / "out", "--weights", "share").code == 0
    reorder = ["-o", tmp_path / "other", "--target", "cpu{cache=reorder}", "--no-verify", "--weights", "share"]
    assert in_process(capfd, "convert", source, *reorder).code == 0
    size = (source / "openvino_model.bin").stat().st_size
    assert "is up to date" in convert(capfd, source, tmp_path / "out", "--weights", "share").out
    assert (source / "openvino_model.bin").stat().st_size == size


def test_run_into_a_file(capfd, tmp_path, source):
    for name in ("one.xml", "two.xml"):
        arguments = ["run", source, "-o", tmp_path / name, "-p", "fuse-attention", "--if-changed"]
        assert in_process(capfd, *arguments).code == 0
        assert f"{tmp_path / name} is up to date" in in_process(capfd, *arguments).out
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        f"{name}.{suffix}" for name in ("one", "two") for suffix in ("xml", "bin", "xml.graphpass.json")
    }


def test_openvino_genai_loads_the_folder(capfd, tmp_path):
    """It reads every file of the folder that it knows by name; this one is none of them."""
    source = export("llama", "ov-stateful")
    assert in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "cpu", "--no-verify").code == 0
    assert (tmp_path / "out" / "graphpass.json").is_file()
    pipeline = openvino_genai.LLMPipeline(tmp_path / "out", "CPU", ATTENTION_BACKEND="SDPA")
    ids = openvino_genai.TokenizedInputs(*prompt())
    generated = pipeline.generate(ids, max_new_tokens=4, do_sample=False, ignore_eos=True)
    assert len(generated.tokens[0]) == 4


def prompt():
    import numpy
    import openvino

    ids = numpy.array([reference("llama")["prompt_ids"]])
    return openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids))


def test_a_damaged_copy_does_not_match_its_certificate(tmp_path):
    """The digest of a copy is that of the source, which was proven."""
    source, folder = tmp_path / "weights", tmp_path / "out"
    folder.mkdir()
    source.write_bytes(bytes(1000))
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "model.onnx.data").write_bytes(bytes(999) + b"\1")
    copies = {"model.onnx.data": WeightFile.of(source)}
    write_manifest(folder / "graphpass.json", {}, {}, ["model.onnx"], {"verdict": "same"}, copies)
    files = json.loads((folder / "graphpass.json").read_text())["certificate"]["files"]
    assert files == {"model.onnx": sha256(b"graph").hexdigest(), "model.onnx.data": sha256(bytes(1000)).hexdigest()}
