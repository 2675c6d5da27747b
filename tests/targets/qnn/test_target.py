"""Pairs on Qualcomm's HTP, emulated on x86 by onnxruntime-qnn: every node, PyTorch's tokens or logits within f16."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from onnx import TensorProto, helper
from support.commands import in_process
from support.loaded import exported
from support.models import dynamo, export, exporters, fixtures, hybrids
from targets.qnn.rounded_activations import with_rounded_activations

import graphpass
from graphpass.artifacts.split import phases_of
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.jobs.pipelines import pipeline_for
from graphpass.runtime.backends.qnn_request import QnnRequest
from graphpass.targets import check_model
from graphpass.targets.qnn import trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.model import Model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not trial.is_installed(), reason="onnxruntime-qnn is not installed: pip install .[qnn]"),
]

#: Fixtures whose greedy tokens on HTP are PyTorch's; others are compared by logits.
EQUAL = ["bloom", "deepseek_v3", "falcon", "gemma2", "gemma3_text", "gpt2", "gpt_neo", "gpt_oss", "llama",
         "mistral_sw8", "phi3", "qwen3_moe"]  # fmt: skip

#: Exports besides optimum's.
OTHERS: dict[str, Callable[[], Path]] = {
    "mistral/onnx-18": lambda: dynamo("mistral") / "onnx-18",
    "gemma3_text/onnx-23": lambda: dynamo("gemma3_text") / "onnx-23",
    "mobius/llama": lambda: exporters("mobius", "llama"),
    "transformers-onnx/olmo3": lambda: exporters("transformers-onnx", "olmo3"),
}

_GREEDY = """
import json, sys
from pathlib import Path
from graphpass.io import load
from graphpass.runtime import open_pair
folder, reference = map(Path, sys.argv[1:])
expected = json.loads(reference.read_text())
pair = open_pair(*(load(folder / f"{name}.onnx") for name in ("prefill", "decode")), device="QNN")
logits = pair.prefill(expected["prompt_ids"])
found = []
for _ in expected["greedy_ids"]:
    found.append(int(logits[0, -1].argmax()))
    logits = pair.step([found[-1]])
assert found == expected["greedy_ids"], (found, expected["greedy_ids"])
pair.reset()
again = pair.prefill(expected["prompt_ids"])
assert int(again[0, -1].argmax()) == found[0], "a second prompt differs"
"""


def pair(fixture: str, options: str = "", model: Model | None = None, chunk: int = 8) -> tuple[Model, Model]:
    """The models of a pair that `convert` would write."""
    target = parse_target(f"qnn{{prompt=24,chunk={chunk},capacity=40{options}}}")
    source = exported(f"{fixture}/onnx") if model is None else model
    prepared = graphpass.PassManager(pipeline_for(target, source)).run(source)
    assert target.split is not None
    made = [graphpass.PassManager(steps).run(prepared.model).model for steps in phases_of(target.split).values()]
    return made[0], made[1]


def on_htp(folder: Path, fixture: str) -> None:
    """Generate on HTP, in a process that may crash."""
    arguments = ["-c", _GREEDY, str(folder), str(fixtures() / fixture / "reference.json")]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("fixture", EQUAL)
def test_tokens_equal_pytorch(capfd: Any, tmp_path: Path, fixture: str) -> None:
    source, out = export(fixture, "onnx"), tmp_path / "out"
    target = "qnn{prompt=24,chunk=8,capacity=40,precision=f32}"
    done = in_process(capfd, "convert", source, "--target", target, "--no-verify", "-o", out)
    assert done.code == 0, done.err
    on_htp(out, fixture)


@pytest.mark.parametrize("fixture", ["deepseek_v3", "falcon_alibi", "gpt2_upcast", "gptj", "opt", "qwen3", *OTHERS])
def test_logits_agree_within_f16(fixture: str) -> None:
    """Norms of mistral/onnx-18 are those that HTP's compiler fails on, as they are exported."""
    model = load(OTHERS[fixture]()) if fixture in OTHERS else None
    observed = trial.observe(*pair(fixture, model=model))
    assert not isinstance(observed, str)
    assert (observed.refused, observed.wrong, observed.ran) == (None, None, True)


@pytest.mark.parametrize(
    ("folder", "chunk"),
    [(lambda: hybrids() / "qwen3_next_dense" / "onnx-raw", 8), (lambda: exporters("mobius", "qwen3_5_text"), 8)],
)
def test_loops_over_tokens_are_unrolled(folder: Callable[[], Path], chunk: int) -> None:
    """Loops of TorchScript, and the Scan of a lowered LinearAttention, which has no mask of padding."""
    models = pair("", ",precision=f32", load(folder()), chunk)
    assert not any(any(model.graph.of_op("Loop", "Scan")) for model in models)
    observed = trial.observe(*models)
    assert not isinstance(observed, str)
    assert (observed.refused, observed.wrong, observed.ran) == (None, None, True)


@pytest.mark.parametrize("fixture", ["llama", "gemma3_text"])
def test_angles_and_norms_are_right_in_default_sizes(capfd: Any, tmp_path: Path, fixture: str) -> None:
    """HTP rounds computed angles of later positions, and norms heads of 16 channels wrongly in chunks of 64 tokens."""
    done = in_process(capfd, "convert", export(fixture, "onnx"), "--target", "qnn", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    verified = in_process(capfd, "verify", export(fixture, "onnx"), tmp_path / "out", "--device", "qnn")
    assert verified.code == 0, verified.out + verified.err


def test_a_converted_pair_is_tried_and_compiled(capfd: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    target = "qnn{prompt=24,chunk=8,capacity=40,compile=true}"
    done = in_process(capfd, "convert", export("llama", "onnx"), "--target", target, "-o", out)
    assert done.code == 0, done.err
    assert "confirmed: ran on HTP, without the CPU provider" in done.out
    names = {file.name for file in out.iterdir()}
    assert {"prefill.onnx", "decode.onnx", "prefill_ctx.onnx", "decode_ctx.onnx"} <= names
    assert any(name.startswith("decode_ctx") and name.endswith(".bin") for name in names)
    checked = in_process(capfd, "check", out, "--target", "qnn")
    assert checked.code == 0, checked.out + checked.err
    assert in_process(capfd, "verify", "--certificate", out).code == 0
    verified = in_process(capfd, "verify", export("llama", "onnx"), out, "--device", "qnn")
    assert verified.code == 0, verified.out + verified.err
    assert "same: 5 sequences, 20 greedy steps" in verified.out
    assert in_process(capfd, "verify", export("gpt2", "onnx"), out, "--device", "qnn").code == 1


@pytest.mark.parametrize("activations", ["u8", "u16"])
def test_rounded_activations_stay_integers(capfd: Any, tmp_path: Path, activations: str) -> None:
    source = with_rounded_activations(export("llama", "onnx"), tmp_path / "in", activations)
    out = tmp_path / "out"
    target = "qnn{prompt=24,chunk=8,capacity=40}"
    done = in_process(capfd, "convert", source, "--target", target, "-o", out)
    assert done.code == 0, done.err
    assert "confirmed: ran on HTP, without the CPU provider" in done.out
    assert ("on the CPU by" in done.out) == (activations == "u8")
    assert "395 of 395 operators" in done.out
    checked = in_process(capfd, "check", out, "--target", "qnn")
    assert ("HTP rounds the second to 8 bits" in checked.out) == (activations == "u16")
    verified = in_process(capfd, "verify", source, out, "--device", "qnn")
    assert verified.code == 0, verified.out + verified.err
    # Those of 16 bits lie within what f16 rounds, or beyond it by little.
    assert "single logits: activations are rounded to integers" in verified.out or activations == "u16"


@pytest.mark.parametrize("op", ["Exp", "Softplus"])
def test_bounded_exponents_of_decays_are_correct(op: str) -> None:
    """HTP computes Exp of numbers between -2000 and -88 as 131008, so that states of recurrences are lost."""
    shape = [1, 64]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", ports[:1], ports[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    x = numpy.linspace(-1000, 8, 64, dtype=numpy.float32)[None]
    with numpy.errstate(over="ignore"):
        expected = numpy.exp(x) if op == "Exp" else numpy.log1p(numpy.exp(x))
    model = OnnxModel(made)
    assert not numpy.allclose(QnnRequest(model).infer({"x": x})["y"], expected, rtol=1e-2, atol=1e-2)
    lowered = graphpass.PassManager(graphpass.parse("lower-for-htp")).run(model).model
    assert isinstance(lowered, OnnxModel)
    assert numpy.allclose(QnnRequest(lowered).infer({"x": x})["y"], expected, rtol=1e-2, atol=1e-2)


def test_a_refusal_is_predicted_and_observed() -> None:
    model = pair("llama", ",precision=f32")[1].clone()
    rewriter = model.rewriter()
    node = next(model.graph.of_op("Softmax"))
    rewriter.replace(node.outputs[0], rewriter.op("Erf", node.source(), name="alone"))
    rewriter.finish()
    report = check_model(model, "qnn")
    assert not report.holds
    assert report.confirmation is not None
    assert report.confirmation.outcome == "confirmed"
    assert "Erf alone would run on the CPU" in report.confirmation.tried
