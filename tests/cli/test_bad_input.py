"""Bad input: the right exit code, one clear message, no traceback, nothing half-written, an older result untouched."""

import shutil

import onnx
import pytest
from support.commands import in_process, in_subprocess
from support.folders import folder_contents
from support.models import export
from support.quick_cases import quick_product


def text_file(folder):
    (folder / "model.onnx").write_text("Hello, this is not a model.\n")
    return folder / "model.onnx"


def empty_file(folder):
    (folder / "model.onnx").touch()
    return folder / "model.onnx"


def truncated_onnx(folder):
    whole = (export("llama", "onnx") / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(whole[: len(whole) // 2])
    return folder / "model.onnx"


def missing_external_data(folder):
    shutil.copy(export("llama", "onnx-genai") / "model.onnx", folder)
    return folder / "model.onnx"


def truncated_external_data(folder):
    missing_external_data(folder)
    (folder / "model.onnx.data").write_bytes((export("llama", "onnx-genai") / "model.onnx.data").read_bytes()[:1000])
    return folder / "model.onnx"


def xml_without_bin(folder):
    shutil.copy(export("llama", "ov-stateless") / "openvino_model.xml", folder)
    return folder / "openvino_model.xml"


def truncated_bin(folder):
    xml_without_bin(folder)
    whole = (export("llama", "ov-stateless") / "openvino_model.bin").read_bytes()
    (folder / "openvino_model.bin").write_bytes(whole[: len(whole) // 2])
    return folder / "openvino_model.xml"


def truncated_xml(folder):
    truncated_bin(folder)
    whole = (folder / "openvino_model.xml").read_bytes()
    (folder / "openvino_model.xml").write_bytes(whole[: len(whole) // 2])
    return folder / "openvino_model.xml"


def other_xml(folder):
    (folder / "model.xml").write_text("<html><body>404</body></html>")
    return folder / "model.xml"


def missing_file(folder):
    return folder / "model.onnx"


def empty_folder(folder):
    return folder


UNREADABLE = [
    (text_file, "GP104"),
    (empty_file, "GP104"),
    (truncated_onnx, "GP104"),
    (missing_external_data, "GP105"),
    (truncated_external_data, "GP105"),
    (xml_without_bin, "GP107"),
    (truncated_bin, "GP107"),
    (truncated_xml, "GP106"),
    (other_xml, "GP106"),
    (missing_file, "GP101"),
    (empty_folder, "GP103"),
]


@pytest.fixture
def older(tmp_path):
    """A folder with an older result."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "openvino_model.xml").write_text("an older result")
    (folder / "openvino_model.bin").write_text("its weights")
    return folder


def check_refused(done, code, error_id):
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith(f"error: {error_id}: ")
    assert done.err.count("error:") == 1
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 4


@pytest.mark.parametrize(("make", "error_id"), UNREADABLE)
@pytest.mark.parametrize("command", ["inspect", "convert", "run", "verify"])
def test_an_unreadable_model_is_refused(capfd, tmp_path, older, command, make, error_id):
    (tmp_path / "in").mkdir()
    model = make(tmp_path / "in")
    options = {
        "inspect": [],
        "convert": ["-o", older, "--target", "cpu"],
        "run": ["-o", older, "-p", "fuse-attention"],
        "verify": [export("llama", "onnx")],
    }[command]
    before = folder_contents(tmp_path)
    done = in_process(capfd, command, model, *options)
    check_refused(done, 3, error_id)
    assert str(model) in done.err or model.name in done.err
    assert folder_contents(tmp_path) == before


@pytest.mark.parametrize(
    ("make", "error_id"), [*UNREADABLE[:2], *(pytest.param(*case, marks=pytest.mark.slow) for case in UNREADABLE[2:7])]
)
def test_an_unreadable_model_in_a_process_of_its_own(tmp_path, older, make, error_id):
    """What libraries print past Python shows here."""
    (tmp_path / "in").mkdir()
    before_in = make(tmp_path / "in")
    before = folder_contents(tmp_path)
    check_refused(in_subprocess("convert", before_in, "-o", older, "--target", "cpu"), 3, error_id)
    assert folder_contents(tmp_path) == before


@pytest.mark.parametrize(
    ("pipeline", "error_id"), [("fuse-atention", "GP211"), ("make-stateful{beam=true}", "GP212"), ("a,{", "GP210")]
)
def test_an_unknown_pass_or_option(tmp_path, older, pipeline, error_id):
    before = folder_contents(tmp_path)
    done = in_subprocess("run", export("llama", "onnx"), "-o", older, "-p", pipeline)
    assert done.code == 2
    assert done.err.startswith(f"error: {error_id}: ")
    assert "^" in done.err
    assert "Traceback" not in done.err
    assert folder_contents(tmp_path) == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("below", "command"), quick_product(["file", "file/deeper"], ["convert", "run", "run to file"])
)
def test_an_unwritable_output(tmp_path, below, command):
    (tmp_path / "file").write_text("a regular file")
    out = tmp_path / below
    options = {
        "convert": ["convert", export("llama", "onnx"), "--target", "cpu", "-o", out],
        "run": ["run", export("llama", "onnx"), "-p", "to-openvino", "-o", out],
        "run to file": ["run", export("llama", "onnx"), "-p", "to-openvino", "-o", out / "model.xml"],
    }[command]
    before = folder_contents(tmp_path)
    done = in_subprocess(*options)
    check_refused(done, 6, "GP501")
    assert "cannot write" in done.err
    assert folder_contents(tmp_path) == before


def test_unwritable_outputs_are_refused_before_the_conversion(capfd, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("graphpass.engine.manager.PassManager.run", lambda *_: pytest.fail("a pass ran"))
    arguments = [export("llama", "onnx"), "-o", tmp_path / "file" / "out", "--target", "cpu"]
    check_refused(in_process(capfd, "convert", *arguments), 6, "GP501")


@pytest.fixture
def stateless(tmp_path):
    return shutil.copytree(export("llama", "ov-stateless"), tmp_path / "model")


def test_converting_a_model_onto_itself(capfd, tmp_path, stateless, monkeypatch):
    monkeypatch.setattr("graphpass.engine.manager.PassManager.run", lambda *_: pytest.fail("a pass ran"))
    (tmp_path / "link").symlink_to(stateless, target_is_directory=True)
    before = folder_contents(stateless)
    for source in (stateless, stateless / "openvino_model.xml"):
        for out in (stateless, tmp_path / "link", stateless / ".." / "model"):
            check_refused(in_process(capfd, "convert", source, "-o", out, "--target", "cpu"), 2, "GP203")
    assert folder_contents(stateless) == before


def test_running_a_pipeline_onto_the_model_itself(capfd, stateless):
    before = folder_contents(stateless)
    for out in (stateless, stateless / "openvino_model.xml"):
        check_refused(in_process(capfd, "run", stateless, "-o", out, "-p", "fuse-attention"), 2, "GP203")
    assert folder_contents(stateless) == before


def test_onnx_weights_with_the_file_name_of_the_result(capfd, tmp_path):
    model = onnx.load(export("llama", "onnx") / "model.onnx")
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="model.bin", size_threshold=0)
    before = folder_contents(tmp_path)
    arguments = ["run", tmp_path / "model.onnx", "-o", tmp_path / "model.xml", "-p", "to-openvino"]
    done = in_process(capfd, *arguments)
    check_refused(done, 2, "GP203")
    assert "model.bin, which belongs to the input" in done.err
    assert folder_contents(tmp_path) == before


def test_results_sharing_the_weights_of_the_input(capfd, stateless):
    """``model.xml`` reads ``model.bin``, and so does ``other/../model.xml``."""
    before = folder_contents(stateless)
    out = stateless / "sub" / ".." / "openvino_model.xml"
    (stateless / "sub").mkdir()
    check_refused(in_process(capfd, "run", stateless, "-o", out, "-p", "fuse-attention"), 2, "GP203")
    (stateless / "sub").rmdir()
    assert folder_contents(stateless) == before


def test_an_empty_path_from_a_variable(capfd, tmp_path, monkeypatch):
    shutil.copy(export("llama", "onnx") / "model.onnx", tmp_path)
    monkeypatch.chdir(tmp_path)
    before = folder_contents(tmp_path)
    for arguments in (
        ["inspect", ""],
        ["inspect", "model.onnx", "--html", ""],
        ["convert", "", "-o", "out", "--target", "cpu"],
        ["convert", "model.onnx", "-o", "", "--target", "cpu"],
        ["run", "model.onnx", "-o", "out", "-p", "to-openvino", "--dump", ""],
        ["split", "model.onnx", "-o", "", "--prompt", "8", "--capacity", "16"],
    ):
        done = in_process(capfd, *arguments)
        assert (done.code, done.out) == (2, "")
        assert "the path is empty" in done.err
    assert folder_contents(tmp_path) == before


def test_a_report_over_the_model(capfd, stateless):
    before = folder_contents(stateless)
    for name in ("openvino_model.xml", "openvino_model.bin"):
        check_refused(in_process(capfd, "inspect", stateless, "--html", stateless / name), 2, "GP203")
    assert folder_contents(stateless) == before


@pytest.mark.parametrize("command", ["convert", "run"])
def test_too_long_names_are_refused(capfd, tmp_path, command):
    options = {"convert": ["--target", "cpu"], "run": ["-p", "to-openvino"]}[command]
    long = tmp_path / ("x" * 300)
    check_refused(in_process(capfd, command, export("llama", "onnx"), "-o", long, *options), 6, "GP501")
    check_refused(in_process(capfd, command, long, "-o", tmp_path / "out", *options), 3, "GP101")
    assert folder_contents(tmp_path) == {}


@pytest.mark.parametrize("below", [".", "dump"])
def test_dump_into_the_output_needs_an_existing_folder(capfd, tmp_path, below):
    out = tmp_path / "out"
    arguments = ["run", export("llama", "onnx"), "-o", out, "-p", "to-openvino", "--dump", out / below]
    check_refused(in_process(capfd, *arguments), 2, "GP204")
    assert folder_contents(tmp_path) == {}
    out.mkdir()
    assert in_process(capfd, *arguments).code == 0
    assert (out / below / "01-to-openvino.xml").is_file()
    assert (out / "openvino_model.xml").is_file()


@pytest.mark.parametrize(
    ("names", "given", "hint"),
    [
        (["llama/model.onnx"], "lama", "did you mean {}/llama?"),
        (["llama/a.onnx", "t5/a.xml"], ".", "name one of its folders with a model: {}/llama, {}/t5"),
        (["model.safetensors", "config.json"], ".", "export the checkpoint first"),
        (["model.gguf"], "model.gguf", "export the checkpoint first"),
        (["m.xml", "m.bin"], "m.bin", "name its graph file: {}/m.xml"),
        (["m.onnx", "m.onnx.data"], "m.onnx.data", "name its graph file: {}/m.onnx"),
        (["openvino_tokenizer.xml", "tokenizer.json"], ".", "name the model file"),
    ],
)
def test_the_hint_names_the_model_instead(capfd, tmp_path, names, given, hint):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    done = in_process(capfd, "inspect", tmp_path / given)
    assert done.code == 3
    assert f"hint: {hint.replace('{}', str(tmp_path))}" in done.err


@pytest.mark.parametrize(
    "given", ["Qwen/Qwen2.5-0.5B", "https://huggingface.co/Qwen/Qwen2.5-0.5B", "hf://Qwen/Qwen2.5-0.5B"]
)
def test_hub_ids_are_exported_first(capfd, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    done = in_process(capfd, "inspect", given)
    assert done.code == 3
    assert "optimum-cli export openvino --model Qwen/Qwen2.5-0.5B DIR" in done.err
    assert "optimum-cli export onnx --model Qwen/Qwen2.5-0.5B DIR" in done.err


@pytest.mark.parametrize("given", ["Qwen/model.onnx", "Qwen/Qwen2.5-0.5B/onnx", "exports/qwen", "none/$(x)"])
def test_other_missing_paths_are_not_hub_ids(capfd, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exports").mkdir()
    done = in_process(capfd, "inspect", given)
    assert done.code == 3
    assert "optimum-cli" not in done.err
