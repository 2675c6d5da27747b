"""The target `qnn`: which models it refuses in advance, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.commands import in_process
from support.loaded import exported, run_once
from support.models import export
from targets.qnn.pairs import QNN, phase
from targets.qnn.rounded_activations import with_rounded_activations

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.pipeline import parse_target
from graphpass.targets.qnn.operators import computed_nodes, why_on_cpu, why_wrong
from graphpass.testing import parse_model


def refusals(model: Any) -> list[str | None]:
    return [finding.reason for finding in QNN.predict(model, analyze_caches(model)) if not finding.holds]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "fixture",
    [
        "bloom", "deepseek_v3", "falcon", "falcon_alibi", "gemma2", "gemma3_text", "gpt2", "gpt2_upcast", "gpt_neo",
        "gpt_oss", "gptj", "llama", "mistral_sw8", "opt", "phi3", "qwen3", "qwen3_moe",
    ],
)  # fmt: skip
def test_all_nodes_of_a_pair_are_predicted_to_run_on_htp(fixture: str) -> None:
    assert refusals(phase(fixture)) == []


def test_windows_count_positions_by_the_mask() -> None:
    records = graphpass.PassManager(QNN.pipeline(exported("gemma2/onnx"))).run(exported("gemma2/onnx")).records
    done = {record.step.name: record.result for record in records}
    assert done["window-from-positions"].statistics == {"windows from positions": 2, "masks": 1}


def test_a_mask_shared_with_a_global_layer_is_unchanged() -> None:
    """Layers of gpt_neo add one padding mask; only every other one has a window."""
    from graphpass.analysis.caches.masks import find_masks

    model = run_once(exported("gpt_neo/onnx"), "window-from-positions").model
    assert [mask.window is None for mask in model.analysis(find_masks)] == [True, False]


def test_a_model_of_open_shapes_is_refused() -> None:
    (reason,) = refusals(exported("llama/onnx"))
    assert reason is not None
    assert reason.startswith("its shapes are dynamic")


def test_inexact_results_name_the_preventing_pass() -> None:
    model = run_once(exported("qwen3/onnx"), "fuse-functions,make-static{length=8,past=24}").model
    findings = QNN.predict(model, analyze_caches(model))
    advised = [finding.reason for finding in findings if finding.reason and ": run " in finding.reason]
    assert [reason.rpartition(": run ")[2] for reason in advised] == ["tabulate-angles", "flatten-rows"]
    model = phase("qwen3")
    assert not [finding for finding in QNN.predict(model, analyze_caches(model)) if ": run " in (finding.reason or "")]


def test_a_wrong_operator_is_predicted() -> None:
    model = parse_model(
        """
        %x = Parameter : i64[1, 4]
        %y = Parameter : i64[1, 4]
        %rest = Mod(%x, %y)
        Result(%rest) {name=rest}
        """,
        "onnx",
    )
    assert why_wrong(next(model.graph.of_op("Mod"))) == "the remainder of a multiple is the divisor on HTP, not 0"


def test_rounded_activations_are_predicted(tmp_path: Path) -> None:
    model = graphpass.load(with_rounded_activations(export("llama", "onnx"), tmp_path / "in", "u16"))
    target = parse_target("qnn{prompt=24,chunk=8,capacity=40}")
    static = "make-static{length=8,past=24}"
    found = refusals(run_once(model, f"fuse-functions,{static}").model)
    assert any("run negate-quantized-ports" in str(reason) for reason in found)
    made = graphpass.PassManager((*target.pipeline(model), *graphpass.parse(static))).run(model).model
    assert refusals(made) == []
    assert {value.element_type for node in made.graph.of_op("MatMul") for value in node.outputs} == {"f32"}
    assert any("rounds the second to 8 bits" in str(found.reason) for found in QNN.predict(made, analyze_caches(made)))


@pytest.mark.parametrize("name", ["Gather", "GatherND"])
def test_gathered_matrices_are_refused(name: str) -> None:
    """Experts whose weights are looked up for each token, where fuse-experts does not know them."""
    index = "%index = Unsqueeze(%expert) {axes=[1]}" if name == "GatherND" else "%index = Reshape(%expert, [2])"
    model = parse_model(
        f"""
        %expert = Parameter : i64[2]
        %x = Parameter : f32[2, 4, 1]
        %experts = Constant : f32[3, 8, 4]
        {index}
        %matrices = {name}(%experts, %index) {{{"batch_dims=0" if name == "GatherND" else "axis=0"}}}
        %y = MatMul(%matrices, %x)
        Result(%y) {{name=y}}
        """,
        "onnx",
    )
    reason = why_on_cpu(model.graph, next(model.graph.of_op(name)))
    assert reason is not None
    assert "matrices" in reason


def test_operators_without_a_builder_are_refused() -> None:
    model = phase("llama").clone()
    rewriter = model.rewriter()
    node = next(model.graph.of_op("Softmax"))
    rewriter.replace(node.outputs[0], rewriter.op("Erf", node.source(), name="alone"))
    rewriter.finish()
    assert refusals(model) == ["HTP does not run Erf: no builder of the provider supports it outside of a Gelu"]


@pytest.mark.parametrize("is_norm", [True, False])
def test_norms_by_reciprocals_are_refused(is_norm: bool) -> None:
    model = parse_model(
        f"""
        %x = Parameter : f32[1, 4]
        %w = Constant : f32[4]
        %e = Constant : f32[]
        %s = Multiply(%x, %x) : f32[1, 4]
        %m = {"ReduceMean" if is_norm else "ReduceMax"}(%s) {{axes=[1], keep=true}} : f32[1, 1]
        %a = Add(%m, %e) : f32[1, 1]
        %r = Sqrt(%a) : f32[1, 1]
        %i = Reciprocal(%r) : f32[1, 1]
        %n = Multiply(%x, %i) : f32[1, 4]
        %y = Multiply(%w, %n) : f32[1, 4]
        Result(%y) {{name=y}}
        """,
        "onnx",
    )
    nodes = {node.op: node for node in model.graph.nodes}
    reason = why_on_cpu(model.graph, nodes["Reciprocal"])
    assert (reason is not None and "run lower-for-htp" in reason) == is_norm


def test_operators_on_constants_are_folded_before() -> None:
    model = parse_model(
        """
        %x = Parameter : f32[1, 4]
        %w = Constant : f32[1, 4]
        %e = Erf(%w) : f32[1, 4]
        %y = Add(%x, %e) : f32[1, 4]
        Result(%y) {name=y}
        """,
        "onnx",
    )
    nodes = {node.op: node for node in model.graph.nodes}
    assert nodes["Erf"].index not in computed_nodes(model.graph)
    assert nodes["Add"].index in computed_nodes(model.graph)


@pytest.mark.parametrize(
    ("target", "id", "words"),
    [
        ("qnn{prompt=24,chunk=32}", "GP266", "a chunk of 32, a prompt of 24"),
        ("qnn{prompt=64,capacity=32}", "GP266", "a capacity of 32 are inconsistent"),
        ("qnn{chunk=many}", "GP213", "chunk"),
        ("qnn{precision=i8}", "GP213", "precision"),
    ],
)
def test_impossible_sizes_of_pairs(capfd: Any, tmp_path: Any, target: str, id: str, words: str) -> None:  # noqa: A002
    done = in_process(capfd, "convert", export("llama", "onnx"), "--target", target, "-o", tmp_path / "out")
    assert done.code == 2
    assert id in done.err
    assert words in done.err
    assert not (tmp_path / "out").exists()


def test_an_ir_is_refused(capfd: Any, tmp_path: Any) -> None:
    done = in_process(capfd, "convert", export("llama", "ov-stateful"), "--target", "qnn", "-o", tmp_path / "out")
    assert "GP366" in done.err
    assert not (tmp_path / "out").exists()


def test_verify_accepts_a_pair(capfd: Any, tmp_path: Any) -> None:
    llama = export("llama", "onnx")
    for name in ("prefill", "decode"):
        (tmp_path / f"{name}.onnx").write_bytes((llama / "model.onnx").read_bytes())
    for option in (["--edits"], ["--padding", "right"], ["--atol", "0"]):
        done = in_process(capfd, "verify", llama, tmp_path, *option)
        assert done.code == 2
        assert "of the options of a comparison, prefill and decode models accept only --device" in done.err
    assert "GP394" in in_process(capfd, "verify", llama, tmp_path, "--device", "QNN").err


def test_new_weights_are_shared_by_both_models(capfd: Any, tmp_path: Path) -> None:
    done = in_process(
        capfd, "convert", export("llama", "onnx-genai"), "--target", "qnn", "--no-verify", "-o", tmp_path / "out"
    )
    assert done.code == 0, done.err
