import json

import pytest
from support.commands import in_process
from support.models import export
from support.report_schemas import assert_valid_report, schema_validator


def checked(capfd, model, variant, target, *options):
    return in_process(capfd, "check", export(model, variant), "--target", target, *options)


def test_a_kept_contract(capfd):
    done = checked(capfd, "llama_12l", "ov-stateful", "cpu")
    assert (done.code, done.err) == (0, "")
    assert "for cpu\n\n  layers 0-11  fused  12 attention\n\nconfirmed: compiled on" in done.out


def test_a_broken_contract(capfd):
    done = checked(capfd, "xglm", "ov-stateful", "cpu")
    assert done.code == 1
    assert "the contract does not hold" in done.out
    assert "  layer 0  not fused  attention __module.model.layers.0.self_attn/aten::softmax/Softmax\n" in done.out
    assert "      it is decomposed around a Softmax: run fuse-attention\n      rule: src/plugins/intel_cpu/" in done.out


def test_predictions_alone_print_no_confirmation(capfd):
    assert "confirmed" not in checked(capfd, "llama", "ov-stateful", "cpu", "--no-confirm").out


def test_an_unknown_target_is_a_usage_error(capfd):
    done = checked(capfd, "llama", "ov-stateful", "tpu")
    assert done.code == 2
    assert done.err.startswith("error: GP215: unknown target 'tpu'")


@pytest.mark.parametrize(
    ("model", "variant", "target"),
    [
        ("llama", "ov-stateful", "cpu"),
        ("lfm2", "ov-stateful", "npu"),
        ("mamba", "ov-stateful", "gpu"),
        ("granitemoehybrid", "ov-stateful", "paged"),
        ("llama", "onnx", "ort"),
        ("llama", "onnx", "cpu"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--no-confirm",)])
def test_json_follows_the_schema(capfd, model, variant, target, options):
    done = checked(capfd, model, variant, target, "--format", "json", *options)
    told = json.loads(done.out)
    assert_valid_report(told, "check")
    assert told["holds"] == (done.code == 0)


@pytest.mark.parametrize("change", [{"target": "gpu{cache"}, {"findings": [{}]}, {"extra": 1}])
def test_the_schema_refuses_wrong_values(capfd, change):
    told = json.loads(checked(capfd, "llama", "ov-stateful", "cpu", "--format", "json", "--no-confirm").out)
    assert schema_validator("check").is_valid(told)
    assert not schema_validator("check").is_valid(told | change)


@pytest.mark.parametrize("missing", ["env.sh", "venv/bin/python"])
def test_an_invalid_gpu_environment(capfd, monkeypatch, tmp_path, missing):
    if missing != "env.sh":
        (tmp_path / "env.sh").touch()
    monkeypatch.setenv("GRAPHPASS_GPU_ENVIRONMENT", str(tmp_path))
    done = in_process(capfd, "check", export("llama", "ov-stateful"), "--target", "gpu")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: GP228: GRAPHPASS_GPU_ENVIRONMENT is {tmp_path}, which has no {missing}\nhint: ")
