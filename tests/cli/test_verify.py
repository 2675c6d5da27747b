import json
import os
import shutil

import pytest
from support.commands import in_process, in_subprocess
from support.models import export


def test_equal_models(capfd):
    done = in_process(capfd, "verify", export("llama", "onnx"), export("llama", "ov-stateful"))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("same: ")


def test_the_first_difference_is_printed(capfd):
    done = in_process(capfd, "verify", export("llama", "onnx"), export("qwen3", "onnx"))
    assert done.code == 1
    assert done.err == ""
    assert "first at sequence 0, the prefill, output logits[0, 0, 0]: " in done.out


def test_the_result_is_printed_as_json(capfd):
    arguments = ["verify", export("llama", "onnx"), export("llama", "ov-stateless"), "--format", "json"]
    done = in_process(capfd, *arguments, "--steps", "3", "--prompt-ids", "1,5,9")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["passed"] is True
    assert found["divergence"] is None
    assert found["sequences"][0]["prompt_ids"] == [[1, 5, 9]]
    assert found["sequences"][0]["steps"] == 3
    done = in_process(capfd, *arguments, "--atol", "0", "--rtol", "0")
    assert done.code == 1
    divergence = json.loads(done.out)["divergence"]
    assert {"sequence", "step", "output", "index", "reference", "candidate"} <= divergence.keys()
    assert divergence["output"] == "logits"


def test_encoders_with_decoders(capfd):
    done = in_process(capfd, "verify", export("t5", "onnx"), export("t5", "ov-stateful"), "--steps", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("same: 3 sequences, 6 greedy steps, last_hidden_state, logits compared")
    done = in_process(capfd, "verify", export("t5", "onnx"), export("t5", "ov-stateful"), "--atol", "0", "--rtol", "0")
    assert done.code == 1
    done = in_process(capfd, "verify", export("t5", "onnx"), export("t5", "ov-stateful"), "--edits")
    assert done.code == 2
    assert done.err.startswith("error: GP250: models of an encoder and a decoder are compared with the options steps")


def test_edits_are_listed(capfd):
    arguments = ["verify", export("lfm2", "ov-stateless"), export("lfm2", "ov-stateful"), "--edits"]
    done = in_process(capfd, *arguments, "--verbose")
    assert done.code == 0
    assert "    before step 4: trim 2, snapshot\n" in done.out
    assert "  not compared: reorder: the reference is of kind hybrid, and only kv caches have slots" in done.out
    found = json.loads(in_process(capfd, *arguments, "--format", "json").out)
    assert found["sequences"][0]["edits"] == []
    assert found["sequences"][4]["edits"][5] == ["restore"]


def test_a_prompt_outside_of_the_vocabulary(capfd):
    done = in_process(capfd, "verify", export("llama", "onnx"), export("llama", "onnx"), "--prompt-ids", "100000")
    assert done.code == 2
    assert done.err.startswith("error: GP250: ")


def test_the_message_for_a_missing_model():
    done = in_subprocess("verify", export("llama", "onnx"), "missing.onnx")
    assert done.code == 3
    assert done.err.startswith("error: GP101: missing.onnx does not exist\nhint: ")


@pytest.mark.parametrize("option", ["--atol", "--rtol"])
def test_an_invalid_tolerance(capfd, option):
    done = in_process(capfd, "verify", export("llama", "onnx"), export("llama", "onnx"), option, "nan")
    assert done.code == 2
    assert done.err.startswith(f"error: GP250: {option[2:]} is nan; expected 0 or more")


@pytest.mark.parametrize(("name", "variant"), [("llama", "onnx"), ("lfm2", "ov-stateless")])
def test_a_model_of_static_shapes(capfd, tmp_path, name, variant):
    source = export(name, variant)
    before = "" if variant == "onnx" else "fuse-attention,expose-position-ids,window-from-positions,"
    for length in (1, 8):
        pipeline = f"{before}make-static{{length={length},past=32}}"
        assert in_process(capfd, "run", source, "-o", tmp_path / str(length), "-p", pipeline, "-q").code == 0
    for models in ((source, tmp_path / "1"), (tmp_path / "1", source)):
        done = in_process(capfd, "verify", *models)
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[-1].startswith("same: 2 sequences, 24 greedy steps")
        assert "not compared: logits of all but the last of several tokens: the " in done.out
    done = in_process(capfd, "verify", source, tmp_path / "8")
    assert done.code == 4
    assert done.err.startswith("error: GP394: expected a decode model of 1 token per step, got 8\nhint: run it with ")


def test_a_static_model_with_different_logits(capfd, tmp_path):
    pipeline = "make-static{length=1,past=32}"
    assert in_process(capfd, "run", export("llama", "onnx"), "-o", tmp_path / "m", "-p", pipeline, "-q").code == 0
    done = in_process(capfd, "verify", export("qwen3", "onnx"), tmp_path / "m")
    assert done.code == 1
    assert "first at sequence 0, the prefill, output logits[0, 0, 0]: " in done.out


def test_a_certificate_is_valid_while_its_files_are_unchanged(capfd, tmp_path):
    result = tmp_path / "result"
    assert in_process(capfd, "convert", export("mistral_sw8", "onnx"), "-o", result, "--target", "ort").code == 0
    check = ["verify", "--certificate", result]
    done = in_process(capfd, *check)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("certificate holds: ")
    assert "rows selected" in done.out
    assert "masks equal for every batch, past and length: 2; without padding 0" in done.out
    assert "lengths of the graphs: 8" in done.out
    found = json.loads(in_process(capfd, *check, "--format", "json").out)
    assert found["reach"]["masks"] == 2
    assert found["versions"]["graphpass"]
    assert "model.onnx" in found["files"]
    noted = json.loads((result / "graphpass.json").read_text())
    added = {"schema_version", "graphpass", "time"}
    assert {key: found[key] for key in found.keys() - added} == noted["certificate"] | {"versions": noted["versions"]}
    content = bytearray((result / "model.onnx").read_bytes())
    content[-100] ^= 1
    (result / "model.onnx").write_bytes(content)
    done = in_process(capfd, *check)
    assert (done.code, done.out) == (1, "")
    changed = f"files changed since the result was proven: {result / 'model.onnx'}"
    assert done.err.startswith(f"error: GP604: {changed}\nhint: ")
    (result / "model.onnx").unlink()
    assert in_process(capfd, *check).err.startswith(f"error: GP604: {result / 'model.onnx'} is missing")


def test_a_missing_certificate_is_refused(capfd, tmp_path):
    nothing = in_process(capfd, "verify", "--certificate", tmp_path / "nothing")
    assert (nothing.code, nothing.err.partition(": ")[2][:5]) == (3, "GP101")
    missing = in_process(capfd, "verify", "--certificate", tmp_path)
    assert (missing.code, missing.err.partition(": there is no ")[0]) == (2, "error: GP269")
    (tmp_path / "graphpass.json").write_text('{"output": {}}')
    assert in_process(capfd, "verify", "--certificate", tmp_path).err.startswith("error: GP269: ")
    (tmp_path / "graphpass.json").write_text("[]")
    assert in_process(capfd, "verify", "--certificate", tmp_path).err.startswith("error: GP118: ")
    assert in_process(capfd, "verify", tmp_path).code == 2


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A result with external weights and a certificate; tests take copies."""
    folder = tmp_path_factory.mktemp("certified") / "result"
    assert in_subprocess("convert", export("llama", "onnx"), "-o", folder, "--target", "cpu", "-q").code == 0
    return folder


def _edited_manifest(change):
    def edit(folder):
        file = folder / "graphpass.json"
        noted = json.loads(file.read_text())
        change(noted)
        file.write_text(json.dumps(noted))

    return edit


def _sealed_anew(change):
    from graphpass.artifacts.manifest import seal

    def edit(noted):
        change(noted)
        noted["certificate"]["seal"] = seal(noted)

    return _edited_manifest(edit)


def _appended(folder):
    with (folder / "openvino_model.bin").open("ab") as stream:
        stream.write(b"\0" * 64)


def _changed_with_its_time(folder):
    file = folder / "openvino_model.bin"
    before, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _linked_to_itself(folder):
    file = folder / "config.json"
    file.unlink()
    file.symlink_to(file)


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (_linked_to_itself, "config.json is missing or shorter than"),
        (_appended, "openvino_model.bin is longer than"),
        (_changed_with_its_time, "files changed since the result was proven: "),
        (lambda folder: (folder / "other.xml").write_text(""), "files added since the result was proven: "),
        (_edited_manifest(lambda noted: noted["certificate"].update(largest_difference=0.0)), "was edited since"),
        (_edited_manifest(lambda noted: noted["options"].update(verify=False)), "was edited since"),
        (_sealed_anew(lambda noted: noted["certificate"]["files"].popitem()), "does not certify all files"),
        (_sealed_anew(lambda noted: noted["certificate"].update(verdict="different")), "the result differs from"),
    ],
)
def test_tampering_is_refused(certified, tmp_path, capfd, tamper, words):
    result = tmp_path / "result"
    shutil.copytree(certified, result)
    assert in_process(capfd, "verify", "--certificate", result).code == 0
    tamper(result)
    done = in_process(capfd, "verify", "--certificate", result)
    assert (done.code, done.err.startswith("error: GP604: "), words in done.err) == (1, True, True), done.err


@pytest.mark.parametrize(
    "change",
    [
        lambda noted: noted["certificate"].update(files={}),
        lambda noted: noted["certificate"].update(files=[]),
        lambda noted: noted.update(output=3),
        lambda noted: noted["certificate"].update(sequences=[{}]),
        lambda noted: noted["certificate"].pop("reference"),
        lambda noted: noted.update(certificate=None),
        lambda noted: noted["certificate"]["reach"].update(steps="none"),
        lambda noted: noted.update(manifest=2),
    ],
)
def test_malformed_manifests_are_refused(certified, tmp_path, capfd, change):
    result = tmp_path / "result"
    shutil.copytree(certified, result)
    _edited_manifest(change)(result)
    done = in_process(capfd, "verify", "--certificate", result)
    assert (done.code, done.err.startswith("error: GP118: ")) == (3, True), done.err


def test_nested_manifests_are_refused(tmp_path, capfd):
    (tmp_path / "graphpass.json").write_text("[" * 100_000)
    assert in_process(capfd, "verify", "--certificate", tmp_path).err.startswith("error: GP118: ")


def test_a_certificate_belongs_to_one_reference(certified, capfd):
    assert in_process(capfd, "verify", export("llama", "onnx"), "--certificate", certified).code == 0
    done = in_process(capfd, "verify", export("qwen3", "onnx"), "--certificate", certified)
    assert done.code == 1
    assert done.err.startswith("error: GP604: the result was proven against another model than ")
