"""``graphpass split``: two models of static shapes, one file of weights."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import openvino
import pytest
from support.commands import in_process
from support.models import export, reference
from support.reference_tokens import greedy_tokens

from graphpass import load
from graphpass.runtime import open_pair

if TYPE_CHECKING:
    from pathlib import Path

SIZES = ["--prompt", "24", "--chunk", "8", "--capacity", "32"]


def split(capfd: Any, source: Path, target: Path, *more: str) -> str:
    done = in_process(capfd, "split", source, "-o", target, *SIZES, *more)
    assert done.code == 0, done.err
    return done.out


def greedy(folder: Path, suffix: str, name: str = "llama") -> list[int]:
    session = open_pair(load(folder / f"prefill{suffix}"), load(folder / f"decode{suffix}"))
    expected = reference(name)
    return greedy_tokens(session, session.prefill(expected["prompt_ids"]), len(expected["greedy_ids"]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("more", [[], ["--weights", "share"]])
def test_a_pair_in_ir_shares_one_bin_file(capfd: Any, tmp_path: Path, more: list[str]) -> None:
    source = tmp_path / "source"
    shutil.copytree(export("llama", "ov-stateful"), source)
    output = split(capfd, source, tmp_path / "out", *more)
    out = tmp_path / "out"
    assert "verified  same: 25 positions compared, after prompts of 1 to 24 tokens" in output
    assert (out / "prefill.bin").samefile(out / "decode.bin")
    assert (out / "prefill.bin").samefile(source / "openvino_model.bin") == bool(more)
    assert (f"WARNING: the weights are shared with {source / 'openvino_model.bin'}: " in output) == bool(more)
    assert not (out / "model.xml").exists()
    assert not (out / "model.bin").exists()
    assert (out / "tokenizer.json").exists()
    for name, length, past in (("prefill", 8, 24), ("decode", 1, 32)):
        model = openvino.Core().read_model(out / f"{name}.xml")
        shapes = {port.get_any_name(): list(port.shape) for port in model.inputs}
        assert shapes["input_ids"] == [1, length]
        assert shapes["attention_mask"] == [1, past + length]
        assert shapes["past_key_values.0.key"] == [1, 2, past, 16]
    assert greedy(out, ".xml") == reference("llama")["greedy_ids"]


def test_a_pair_in_onnx_shares_one_data_file(capfd: Any, tmp_path: Path) -> None:
    split(capfd, export("llama", "onnx"), tmp_path)
    assert {file.name for file in tmp_path.glob("*.onnx*")} == {"prefill.onnx", "decode.onnx", "model.onnx.data"}
    for name in ("prefill.onnx", "decode.onnx"):
        proto = onnx.load(tmp_path / name, load_external_data=False)
        places = {
            entry.value
            for tensor in proto.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        assert places == {"model.onnx.data"}
        assert (tmp_path / name).stat().st_size < (tmp_path / "model.onnx.data").stat().st_size / 4
    assert greedy(tmp_path, ".onnx") == reference("llama")["greedy_ids"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "suffix"), [([], ".onnx"), pytest.param(["--to", "openvino"], ".xml", marks=pytest.mark.slow)]
)
def test_constant_weights_and_cast_presents_are_split(capfd: Any, tmp_path: Path, more: list[str], suffix: str) -> None:
    split(capfd, export("gptj", "onnx"), tmp_path, *more)
    assert greedy(tmp_path, suffix, "gptj") == reference("gptj")["greedy_ids"]


@pytest.mark.slow
def test_many_small_constants_stay_in_the_graph(capfd: Any, tmp_path: Path) -> None:
    """Deep models have many, whose sum is as large as a weight's."""
    proto = onnx.load(export("llama", "onnx") / "model.onnx")
    names = [f"small.{number}" for number in range(200)]
    values = np.zeros(100, np.float32)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(values, name) for name in names)
    proto.graph.node.append(onnx.helper.make_node("Concat", names, ["small"], axis=0))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("small", onnx.TensorProto.FLOAT, [20000]))
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=1024)
    split(capfd, tmp_path / "model.onnx", tmp_path / "out", "--no-verify")
    assert (tmp_path / "out" / "prefill.onnx").exists()


def test_an_onnx_model_is_split_to_ir(capfd: Any, tmp_path: Path) -> None:
    output = split(capfd, export("llama", "onnx"), tmp_path, "--to", "openvino")
    assert "fuse-attention" in output
    assert greedy(tmp_path, ".xml") == reference("llama")["greedy_ids"]


def test_a_model_of_the_onnxruntime_genai_builder(capfd: Any, tmp_path: Path) -> None:
    assert "lower-operators{f32-norms=true}" in split(capfd, export("llama", "onnx-genai"), tmp_path)
    assert greedy(tmp_path, ".onnx") == reference("llama")["greedy_ids"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["mistral_sw8", "gpt_neo", "qwen3_moe"])
def test_windows_and_experts_in_onnx(capfd: Any, tmp_path: Path, name: str) -> None:
    """Windows count positions of `position_ids` and the mask; each expert computes all tokens."""
    split(capfd, export(name, "onnx"), tmp_path)
    assert greedy(tmp_path, ".onnx", name) == reference(name)["greedy_ids"]


@pytest.mark.parametrize("name", ["lfm2", pytest.param("qwen3_next", marks=pytest.mark.slow)])
def test_a_hybrid_masks_its_padding(capfd: Any, tmp_path: Path, name: str) -> None:
    split(capfd, export(name, "ov-stateful"), tmp_path)
    assert greedy(tmp_path, ".xml", name) == reference(name)["greedy_ids"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant", "step"),
    [
        ("qwen3_moe", "onnx", "batch-experts"),
        pytest.param("deepseek_v3", "onnx", "batch-experts", marks=pytest.mark.slow),
        pytest.param("granitemoehybrid", "ov-stateful", "batch-experts", marks=pytest.mark.slow),
    ],
)
def test_experts_compute_all_tokens(capfd: Any, tmp_path: Path, name: str, variant: str, step: str) -> None:
    output = split(capfd, export(name, variant), tmp_path, "--to", "openvino")
    assert [line for line in output.splitlines() if line.split()[:1] == [step] and "experts" in line.split(" s ")[1]]
    assert greedy(tmp_path, ".xml", name) == reference(name)["greedy_ids"]


@pytest.mark.parametrize(
    ("source", "arguments", "words"),
    [
        (("llama", "onnx"), ["--prompt", "8", "--chunk", "9", "--capacity", "9"], "GP266"),
        (("llama", "onnx"), ["--prompt", "8", "--capacity", "7"], "GP266"),
        (("llama", "onnx"), ["--prompt", "8", "--capacity", str(2**31)], "GP266"),
        (("llama", "ov-stateful"), ["--prompt", "8", "--capacity", "9", "--to", "onnx"], "GP268"),
        (("mamba", "onnx-raw"), ["--prompt", "8", "--capacity", "9"], "GP392"),
    ],
)
def test_a_refused_split_leaves_no_files(
    capfd: Any, tmp_path: Path, source: tuple[str, str], arguments: list[str], words: str
) -> None:
    out = tmp_path / "out"
    done = in_process(capfd, "split", export(*source), "-o", out, *arguments)
    assert done.code in {2, 4}
    assert words in done.err
    assert not out.exists()
    assert not list(tmp_path.iterdir())


def test_the_input_is_not_overwritten(capfd: Any, tmp_path: Path) -> None:
    shutil.copytree(export("llama", "onnx"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.onnx").rename(tmp_path / "prefill.onnx")
    before = (tmp_path / "prefill.onnx").read_bytes()
    done = in_process(capfd, "split", tmp_path / "prefill.onnx", "-o", tmp_path, *SIZES)
    assert done.code == 2
    assert "GP203" in done.err
    assert (tmp_path / "prefill.onnx").read_bytes() == before


def test_a_pair_with_different_logits_is_not_written(
    capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphpass.runtime.pair.phases import PhasePairStore

    real = PhasePairStore.run
    monkeypatch.setattr(
        PhasePairStore,
        "run",
        lambda self, step: {name: value + np.float32(step.past > 0) for name, value in real(self, step).items()},
    )
    done = in_process(capfd, "split", export("llama", "onnx"), "-o", tmp_path / "out", *SIZES)
    assert done.code == 1
    assert "sequence 0, step 1, output logits[0, 0]: reference" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("chunk", ["8", "1"])
def test_a_hybrid_with_a_mask_of_new_tokens(capfd: Any, tmp_path: Path, chunk: str) -> None:
    """Beyond 8 tokens at once this export computes something else than token by token, by itself."""
    source, sizes = export("zamba2", "ov-stateful"), ["--prompt", "8", "--capacity", "32", "--chunk"]
    done = in_process(capfd, "split", source, "-o", tmp_path / "out", *sizes, chunk)
    assert done.code == 0, done.err
    assert "verified  same: 15 positions compared, after prompts of 1 to 8 tokens" in done.out


@pytest.mark.slow
def test_windows_rolling_by_one_column_refuse_chunks(capfd: Any, tmp_path: Path) -> None:
    source, sizes = export("zamba2", "ov-stateful"), ["--prompt", "8", "--capacity", "32", "--chunk", "4"]
    done = in_process(capfd, "split", source, "-o", tmp_path / "out", *sizes)
    assert done.code == 4
    assert done.err.startswith("error: GP392: pass make-static: after a past the model accepts 1 token, got 4")
    assert "hint: process prompts in one step, or token by token: graphpass split --chunk 1" in done.err


@pytest.mark.slow
def test_the_hint_for_padding_in_states(capfd: Any, tmp_path: Path) -> None:
    source = export("mamba", "onnx-raw")
    done = in_process(capfd, "split", source, "-o", tmp_path / "out", *SIZES)
    assert "GP392: pass make-static: padding would update cache" in done.err
    assert "split --chunk 1" in done.err
    done = in_process(capfd, "split", source, "-o", tmp_path / "out", *SIZES, "--chunk", "1")
    assert done.code == 0, done.err
