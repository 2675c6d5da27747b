"""Trials on OpenVINO's GPU plugin, or on the environment that replaces a GPU."""

import pytest

from graphpass.errors import UsageError
from graphpass.runtime.backends.openvino_request import is_there
from graphpass.runtime.devices.stand_in import ENVIRONMENT
from graphpass.targets.gpu import trial
from graphpass.targets.worker import Finished
from graphpass.testing import tiny_model


@pytest.mark.skipif(is_there("GPU"), reason="this machine has a GPU")
def test_without_a_gpu_there_is_no_trial(monkeypatch):
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    reason = trial.observe(tiny_model("llama", "stateful", layers=1))
    assert reason == f"this machine has no GPU, and {ENVIRONMENT} names no environment that replaces one"
    assert trial.plugin_version() is None


def test_an_incomplete_environment_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    with pytest.raises(UsageError) as error:
        trial.observe(tiny_model("llama", "stateful", layers=1))
    assert error.value.id == "GP228"


def test_variables_of_kv_caches_are_fused(monkeypatch):
    model = tiny_model("llama", "stateful", layers=1)
    reads = {node.name: node.attributes["variable"] for node in model.graph.of_op("ReadValue")}
    (name, variable), *_ = reads.items()
    monkeypatch.setattr(trial, "run_worker", lambda *_: Finished("tried", {"reads": [name, "other"]}))
    assert trial.observe(model).fused == {variable}
    monkeypatch.setattr(trial, "run_worker", lambda *_: Finished("tried", refused="no kernel"))
    assert trial.observe(model).refused == "no kernel"
