"""Faults planted in passes: found by --verify-each, reduced, bundled, and reproduced from the bundle."""

import zipfile
from dataclasses import replace

import pytest
from support.commands import in_process
from support.models import export

import graphpass
from graphpass.errors import PassFailedError, ReadError, UnsupportedError, UsageError
from graphpass.io import save
from graphpass.jobs.reduce.failing import Failing
from graphpass.jobs.reduce.reduction import failing_case
from graphpass.passes.attention import fuse_attention
from graphpass.passes.devices import fuse_functions
from graphpass.testing import assert_text, parse_model, tiny_model
from graphpass.verify.verify_each import VerifyEach

GELU = """
%x = Parameter : f32[n, 12]
%before = Add(%x, 1.0)
%cube = Power(%before, 3.0)
%small = Multiply(%cube, 0.044715)
%sum = Add(%before, %small)
%scaled = Multiply(%sum, 0.7978846)
%tanh = Tanh(%scaled)
%gate = Add(%tanh, 1.0)
%half = Multiply(%before, 0.5)
%gelu = Multiply(%half, %gate)
%weight = Constant : f32[12, 12]
%y = MatMul(%gelu, %weight)
Result(%y) {name=y}
"""


def plant_gelu(monkeypatch):
    def build(write, match):
        wrong = write.op("Multiply", match["x"], write.number(1.1, "f32"))
        return write.outputs("FastGelu", wrong, count=1, label="gelu", domain="com.microsoft")[0]

    monkeypatch.setattr(fuse_functions, "_GELU_RULE", replace(fuse_functions._GELU_RULE, build=build))


def plant_scale(monkeypatch):
    right = fuse_attention.write_product

    def write_product(graph, write, scales, kind):
        return write.op("Multiply", right(graph, write, scales, kind), write.number(1.5, kind))

    monkeypatch.setattr(fuse_attention, "write_product", write_product)


def plant_crash(monkeypatch):
    right = fuse_functions.rewrite

    def rewrite(rewriter, rules):
        counts = right(rewriter, rules)
        if counts["norms fused"] > 1:
            raise IndexError("list index out of range")
        return counts

    monkeypatch.setattr(fuse_functions, "rewrite", rewrite)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "name", "form", "pipeline", "error", "wrong", "nodes"),
    [
        (plant_gelu, "gemma2", "onnx", "inline-functions,fuse-functions", "GP404", "fuse-functions", 9),
        (
            plant_scale,
            "qwen3",
            "openvino",
            "simplify-shapes,fuse-attention,make-stateful",
            "GP404",
            "fuse-attention",
            4,
        ),
        (plant_crash, "llama", "onnx", "inline-functions,fuse-functions", "GP401", "fuse-functions", 12),
    ],
)
def test_a_planted_fault_is_found_reduced_and_reproduced(
    monkeypatch, tmp_path, plant, name, form, pipeline, error, wrong, nodes
):
    model, passes = tiny_model(name, form, layers=1), graphpass.parse(pipeline)
    plant(monkeypatch)
    with pytest.raises(PassFailedError, match=f"{error}: pass {wrong}"):
        graphpass.PassManager(passes, [VerifyEach(lambda _: None)]).run(model)
    found = graphpass.reduce(model, passes, error, seconds=600)
    assert [step.name for step in found.case.passes] == [wrong]
    assert found.case.nodes <= nodes
    graphpass.bundle(found.case, tmp_path / "bundle.zip")
    assert graphpass.replay(tmp_path / "bundle.zip") == found.failure
    monkeypatch.undo()
    assert graphpass.replay(tmp_path / "bundle.zip") is None


def test_commands_reduce_and_bundle(capfd, tmp_path, monkeypatch):
    plant_gelu(monkeypatch)
    save(parse_model(GELU), tmp_path / "m.onnx")
    case, packed = tmp_path / "m.graph", tmp_path / "m.zip"
    reduced = ("reduce", tmp_path / "m.onnx", "-p", "inline-functions,fuse-functions", "-o")
    refused = in_process(capfd, *reduced, tmp_path / "m.onnx" / "case")
    assert (refused.code, refused.err[:13], "passes: " in refused.err) == (6, "error: GP501:", False)
    done = in_process(capfd, *reduced, case)
    assert done.code == 0
    assert done.out.startswith("10 -> 8 nodes, 1 passes left after ")
    assert "fails: output gelu.out[0, 0]: reference " in done.out
    read = Failing.parse(case.read_text())
    assert str(read) == case.read_text()
    gelu = "\n".join(GELU.splitlines()[3:11])
    assert_text(read.model(), f"%before = Parameter : f32[n3, 1]\n{gelu}\nResult(%gelu) {{name=gelu.out}}")
    assert in_process(capfd, "bundle", case, "-o", packed) == (0, f"{packed}\n", "")
    first = packed.read_bytes()
    assert in_process(capfd, "bundle", case, "-o", packed).code == 0
    assert packed.read_bytes() == first
    with zipfile.ZipFile(packed) as file:
        assert set(file.namelist()) == {"README.txt", "case.graph", "log.txt", "versions.json"}
        assert "com.microsoft.FastGelu(" in file.read("log.txt").decode()
    assert in_process(capfd, "bundle", "--replay", packed).out.startswith("fails: output gelu.out[0, 0]: ")
    assert in_process(capfd, "bundle", "--replay", packed, "-p", "fuse-functions").code == 2
    assert "a model needs the passes" in in_process(capfd, "bundle", tmp_path, "-o", packed).err
    monkeypatch.undo()
    assert in_process(capfd, "bundle", "--replay", packed) == (1, "does not fail\n", "")


def test_a_crash_prints_the_command(capfd, tmp_path, monkeypatch):
    def broken(rewriter, rules):
        raise IndexError("list index out of range")

    monkeypatch.setattr(fuse_functions, "rewrite", broken)
    save(parse_model(GELU), tmp_path / "m.onnx")
    done = in_process(capfd, "run", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx", "-p", "fuse-functions")
    assert done.code == 5
    command = f"graphpass reduce {tmp_path}/m.onnx -p fuse-functions --keeps GP401"
    assert done.err.endswith(f"hint: for a report run {command}\n")
    done = in_process(capfd, *command.split()[1:])
    assert done.out.startswith("// RUN: fuse-functions\n// DIALECT: onnx 21\n// KEEPS: GP401\n")
    assert "1 passes left" in done.err


def test_reduce_refuses_a_passing_model(tmp_path):
    with pytest.raises(UsageError, match="GP275: the pipeline does not fail with different: it ends without error"):
        graphpass.reduce(parse_model(GELU), "fuse-functions", "different")
    with pytest.raises(UsageError, match=r"GP275: .* it ends with GP301: "):
        graphpass.reduce(parse_model(GELU), "make-stateful", "GP312")
    with pytest.raises(UnsupportedError, match="GP388: the text form does not support the model: "):
        graphpass.reduce(export("qwen3_next", "ov-stateful"), "fuse-functions", "different")
    with pytest.raises(UsageError, match="GP275: 'bogus' is not a failure"):
        graphpass.reduce(parse_model(GELU), "fuse-functions", "bogus")
    with pytest.raises(UsageError, match="GP216: there is no error GP31"):
        graphpass.reduce(parse_model(GELU), "fuse-functions", "GP31")
    with pytest.raises(UsageError, match="GP275: "):
        graphpass.bundle(parse_model(GELU), tmp_path / "m.zip", "fuse-functions")
    case = failing_case(parse_model(GELU), graphpass.parse("fuse-functions"), "different")
    with pytest.raises(UsageError, match="GP275: fuse-functions does not fail with different: it ends without error"):
        graphpass.bundle(case, tmp_path / "m.zip")
    assert not (tmp_path / "m.zip").exists()
    (tmp_path / "no.zip").write_bytes(b"\xff\xfe")
    with pytest.raises(ReadError, match="GP120: "):
        graphpass.replay(tmp_path / "no.zip")
    with pytest.raises(ReadError, match="GP101: "):
        graphpass.replay(tmp_path / "none.zip")
