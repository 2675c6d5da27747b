import json
import re
import shutil

import pytest
from support.commands import in_process
from support.folders import folder_contents
from support.models import export
from support.plugins import plugin_paths
from support.scale import scaled

from graphpass.io import load

COMPANIONS = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
}


@pytest.fixture
def sample(tmp_path, monkeypatch):
    for path in plugin_paths("sample_plugin", tmp_path / "plugin"):
        monkeypatch.syspath_prepend(path)


def test_convert_writes_the_model_and_its_companions(capfd, tmp_path):
    out = tmp_path / "made" / "here"
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", out, "--target", "cpu")
    assert (done.code, done.err) == (0, "")
    assert {file.name for file in out.iterdir()} == {
        "openvino_model.xml",
        "openvino_model.bin",
        "graphpass.json",
    } | COMPANIONS
    assert (out / "config.json").read_bytes() == (export("llama", "onnx") / "config.json").read_bytes()
    inspected = json.loads(in_process(capfd, "inspect", out, "--format", "json").out)
    assert inspected["stateful"]
    assert [block["form"] for block in inspected["attention"]] == ["ScaledDotProductAttention"] * 2


def test_convert_prints_a_report(capfd, tmp_path):
    out = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "cpu").out
    assert re.search(r"^before    ONNX, stateless, kind kv, 4 kv caches, 2 decomposed, fusable$", out, re.MULTILINE)
    assert re.search(r"^after     OpenVINO IR, stateful, kind kv, 4 kv caches, 2 fused ScaledDot.*$", out, re.MULTILINE)
    assert re.search(r"^pipeline  to-openvino,change-precision,fuse-attention,.*make-stateful", out, re.MULTILINE)
    assert re.search(r"^  make-stateful +\d+\.\d{3} s  4 variables", out, re.MULTILINE)
    assert re.search(r"^verified  same: ", out, re.MULTILINE)
    assert re.search(r"^written to .*: 8 files, \d+ KB$", out, re.MULTILINE)


def test_converting_twice_writes_the_same_bytes(capfd, tmp_path):
    for name in ("a", "b"):
        options = ["-o", tmp_path / name, "--target", "cpu", "--no-verify"]
        assert in_process(capfd, "convert", export("llama", "onnx"), *options).code == 0
    assert folder_contents(tmp_path / "a") == folder_contents(tmp_path / "b")


def test_quiet_prints_the_file_alone(capfd, tmp_path):
    arguments = ["convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "ort"]
    assert in_process(capfd, "-q", *arguments) == (0, f"{tmp_path}/out/model.onnx\n", "")
    done = in_process(capfd, *arguments, "--quiet", "--no-verify")
    assert done == (0, f"{tmp_path}/out/model.onnx\n", "")


def test_the_result_may_be_written_beside_the_input(capfd, tmp_path):
    shutil.copytree(export("llama", "onnx"), tmp_path / "model")
    before = folder_contents(tmp_path / "model")
    arguments = [
        "convert",
        tmp_path / "model" / "model.onnx",
        "-o",
        tmp_path / "model",
        "--target",
        "cpu",
        "--no-verify",
    ]
    assert in_process(capfd, *arguments).code == 0
    after = folder_contents(tmp_path / "model")
    assert after.keys() - before.keys() == {"openvino_model.xml", "openvino_model.bin", "graphpass.json"}
    assert {name: after[name] for name in before} == before


def test_run_accepts_instruments(capfd, tmp_path):
    done = in_process(
        capfd,
        *("run", export("llama", "onnx"), "-o", tmp_path / "out", "-p", "to-openvino,change-precision,fuse-attention"),
        *("--print-changed", "--verify-each", "--dump", tmp_path / "dump"),
    )
    assert done.code == 0
    assert len(re.findall(r"^\+%\S+ = ScaledDotProductAttention\(", done.err, re.MULTILINE)) == 2
    assert (tmp_path / "dump" / "01-to-openvino.xml").is_file()
    assert load(tmp_path / "dump" / "03-fuse-attention.xml").dialect == "openvino"


@pytest.mark.slow
def test_convert_accepts_instruments(capfd, tmp_path):
    done = in_process(
        capfd,
        *("convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "cpu"),
        *("--print-changed", "--verify-each", "--dump", tmp_path / "dump"),
    )
    assert done.code == 0
    assert len(re.findall(r"^\+%\S+ = ScaledDotProductAttention\(", done.err, re.MULTILINE)) == 2
    assert (tmp_path / "dump" / "01-to-openvino.xml").is_file()
    assert load(tmp_path / "dump" / "03-fuse-attention.xml").dialect == "openvino"


@pytest.mark.usefixtures("sample")
def test_a_third_party_s_target(capfd, tmp_path):
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "sample")
    assert done.code == 0
    assert "pipeline  to-openvino,sample-scale" in done.out
    assert "note: sample-scale: scaled logits" in done.out


@pytest.mark.usefixtures("sample")
def test_a_result_with_different_logits_is_not_written(capfd, tmp_path, monkeypatch):
    from graphpass_sample.scale import Scale
    from graphpass_sample.target import Sample

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "openvino_model.xml").write_text("an older result")
    monkeypatch.setattr(Sample, "pipeline", lambda self, model: (Scale(factor=3.0),))
    arguments = ["convert", export("llama", "ov-stateless"), "-o", tmp_path / "out", "--target", "sample"]
    before = folder_contents(tmp_path / "out")
    done = in_process(capfd, *arguments)
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("error: GP601: the result does not compute the same as the input")
    assert "first at sequence 0, the prefill, output logits[0, 0, 0]" in done.err
    assert folder_contents(tmp_path / "out") == before
    assert in_process(capfd, *arguments, "--verify-each").code == 5
    assert folder_contents(tmp_path / "out") == before
    assert in_process(capfd, *arguments, "--no-verify").code == 0


@pytest.mark.usefixtures("sample")
def test_a_result_breaking_the_contract_is_not_written(capfd, tmp_path, monkeypatch):
    from graphpass_sample.target import Sample

    monkeypatch.setattr(Sample, "pipeline", lambda self, model: ())
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "sample")
    assert done.code == 5
    assert done.err.startswith("error: GP405: target sample requires 'OpenVINO IR'")
    assert not (tmp_path / "out").exists()


def test_a_model_without_caches_is_refused(capfd, tmp_path):
    done = in_process(capfd, "convert", export("llama", "onnx-nocache"), "-o", tmp_path / "out", "--target", "cpu")
    assert done.code == 4
    assert done.err.startswith("error: GP302: pass make-stateful (after to-openvino, change-precision, fuse-attention")
    assert not (tmp_path / "out").exists()


def test_an_unknown_target_is_refused(capfd, tmp_path):
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "cpuu")
    assert done.code == 2
    assert done.err.startswith("error: GP215: unknown target 'cpuu'")
    assert "hint: did you mean cpu?" in done.err


def test_a_model_for_reordering_has_its_inputs(capfd, tmp_path):
    done = in_process(
        capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "cpu{cache=reorder}"
    )
    assert (done.code, done.err) == (0, "")
    assert {"src_idx", "dst_idx"} <= {port.name for port in load(tmp_path / "out").inputs}


def test_a_model_that_cannot_run_alone_needs_no_verify(capfd, tmp_path):
    decoder = export("t5", "onnx") / "decoder_with_past_model.onnx"
    done = in_process(capfd, "convert", decoder, "-o", tmp_path / "out", "--target", "cpu")
    assert done.code == 4
    assert "cannot be verified" in done.err
    assert "--no-verify" in done.err
    assert not (tmp_path / "out").exists()
    done = in_process(capfd, "convert", decoder, "-o", tmp_path / "out", "--target", "cpu", "--no-verify")
    assert done.code == 0
    assert (tmp_path / "out" / "openvino_model.xml").exists()


def test_an_unfused_result_is_not_written(capfd, tmp_path):
    arguments = ["convert", export("gemma2", "onnx"), "-o", tmp_path / "out", "--target", "cpu", "--no-verify"]
    done = in_process(capfd, *arguments)
    assert done.code == 4
    assert done.err.startswith("error: GP350: the result does not keep the contract of target cpu: /model/layers.0/")
    assert "--allow-unfused" in done.err
    assert not (tmp_path / "out").exists()
    done = in_process(capfd, *arguments, "--allow-unfused")
    assert done.code == 0
    assert "contract  does not hold\n  /model/layers.0/self_attn/Softmax is not fused: " in done.out


def test_weights_are_copied_by_default(capfd, tmp_path):
    shutil.copytree(export("llama", "ov-stateless"), tmp_path / "in")
    before = folder_contents(tmp_path / "in")
    arguments = ["convert", tmp_path / "in", "-o", tmp_path / "out", "--target", "cpu", "--no-verify"]
    done = in_process(capfd, *arguments)
    assert done.code == 0
    assert "WARNING" not in done.out
    assert folder_contents(tmp_path / "in") == before
    for _ in range(2):  # the second time over a result that shares them already
        done = in_process(capfd, *arguments, "--weights", "share")
        assert done.code == 0
        source = tmp_path / "in" / "openvino_model.bin"
        said = rf"^  WARNING: the weights are shared with {source}: (nothing was|\d+ bytes were) appended to it"
        assert re.search(said, done.out, re.MULTILINE)
        assert source.samefile(tmp_path / "out" / "openvino_model.bin")
        assert source.read_bytes().startswith(before["openvino_model.bin"])
        assert load(tmp_path / "in").digest() == load(export("llama", "ov-stateless")).digest()


def test_unshareable_weights_are_refused(capfd, tmp_path):
    arguments = ["convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "cpu", "--no-verify"]
    done = in_process(capfd, *arguments, "--weights", "share")
    assert done.code == 2
    assert done.err.startswith("error: GP230: --weights share requires one weight file, got none")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_model_refused_by_paged_attention_is_not_written(capfd, tmp_path):
    out = tmp_path / "out"
    done = in_process(capfd, "convert", export("gemma2", "onnx"), "-o", out, "--target", "paged", "--no-verify")
    assert done.code == 4
    assert done.err.startswith("error: GP350: the result does not keep the contract of target paged: ")
    assert (
        "/model/layers.0/self_attn/Softmax is refused: it is decomposed around a Softmax: its scores are " in done.err
    )
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lfm2", pytest.param("granitemoehybrid", marks=pytest.mark.slow)])
def test_a_model_for_paged_attention_is_confirmed(capfd, tmp_path, name):
    out = tmp_path / "out"
    done = in_process(capfd, "convert", export(name, "ov-stateful"), "-o", out, "--target", "paged")
    assert (done.code, done.err) == (0, "")
    assert "contract  holds; confirmed: ran SDPAToPagedAttention on a copy" in done.out


def test_a_model_for_a_gpu_meets_the_contract(capfd, tmp_path):
    done = in_process(capfd, "convert", export("lfm2", "ov-stateless"), "-o", tmp_path / "out", "--target", "gpu")
    assert (done.code, done.err) == (0, "")
    assert "contract  holds; " in done.out


@pytest.mark.slow
def test_a_model_for_an_npu_is_confirmed(capfd, tmp_path):
    """With a sliding window, which NPUW mends for padded prompts in one form only."""
    done = in_process(capfd, "convert", export("gemma3_text", "onnx"), "-o", tmp_path / "out", "--target", "npu")
    assert (done.code, done.err) == (0, "")
    assert "contract  holds; confirmed: compiled with NPUW on the CPU, and ran 8 steps" in done.out


@pytest.mark.slow
def test_a_hybrid_for_an_npu(capfd, tmp_path):
    """Whose linear layers absorb padding as they are exported, and whose caches other exporters name otherwise."""
    done = in_process(capfd, "convert", export("lfm2", "onnx-genai"), "-o", tmp_path / "out", "--target", "npu")
    assert (done.code, done.err) == (0, "")
    assert "contract  holds; confirmed: compiled with NPUW on the CPU, and ran 8 steps" in done.out


def test_a_model_refused_by_an_npu_is_not_written(capfd, tmp_path):
    out = tmp_path / "out"
    done = in_process(capfd, "convert", export("mamba", "ov-stateless"), "-o", out, "--target", "npu", "--no-verify")
    assert done.code == 4
    assert "it has no keys and values" in done.err
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["npu", "paged"])
@pytest.mark.parametrize(("name", "variant"), [("llama", "ov-stateless"), ("qwen3", "onnx")])
def test_models_of_other_layouts_meet_contracts(capfd, tmp_path, name, variant, target):
    other = tmp_path / "other"
    assert in_process(capfd, "run", export(name, variant), "-o", other, "-p", "standardize-layout{to=BSHD}").code == 0
    done = in_process(capfd, "convert", other, "-o", tmp_path / "out", "--target", target)
    assert done.code == 0
    assert "contract  holds; confirmed" in done.out


def test_a_page_shows_the_model_before_and_after(capfd, tmp_path):
    options = ["-o", tmp_path / "out", "--target", "cpu", "--no-verify", "--if-changed", "--html"]
    options.append(tmp_path / "page.html")
    assert in_process(capfd, "convert", export("llama", "onnx"), *options).code == 0
    page = (tmp_path / "page.html").read_text()
    assert '"titles":["before","after"]' in page
    assert '"layer 1"' in page
    assert "pipeline  to-openvino" in page
    again = in_process(capfd, "convert", export("llama", "onnx"), *options)
    assert (again.code, "page.html is not written: nothing was converted" in again.err) == (0, True)


def test_a_page_about_shared_weights_reads_none(capfd, tmp_path, monkeypatch):
    """The one file of weights grows when the result is written."""
    from graphpass.storage import digests

    monkeypatch.setattr(digests, "_computed", lambda *_: pytest.fail("weights were read"))
    source = scaled("llama", "tiny", tmp_path / "in")
    options = ["-o", tmp_path / "out", "--target", "cpu", "--no-verify", "--weights", "share"]
    assert in_process(capfd, "convert", source, *options, "--html", tmp_path / "page.html").code == 0
    assert "unchanged weights: 100.00 %" in (tmp_path / "page.html").read_text()


def test_an_unwritable_page_leaves_no_result(capfd, tmp_path):
    (tmp_path / "file").write_text("in the way")
    options = ["-o", tmp_path / "out", "--target", "cpu", "--no-verify", "--html", tmp_path / "file" / "page.html"]
    done = in_process(capfd, "convert", export("llama", "onnx"), *options)
    assert (done.code, "GP501" in done.err) == (6, True)
    assert not (tmp_path / "out").exists()
