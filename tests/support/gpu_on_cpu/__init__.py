"""OpenVINO's GPU plugin on a CPU: an environment that is set up where a test first asks for it.

It holds a Python with OpenVINO and Intel's OpenCL runtime for CPUs, and `layer.cpp`, which presents that as a GPU; it
has to be entered by ``env.sh`` before a process starts. FAKEGPU_MODE is ``null`` (what is compiled can be looked at,
outputs are garbage) or ``lazy`` (kernels are built when first launched: numbers are right, but not how long they take).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import openvino
import pytest

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.targets.worker import run_worker

__all__ = ["Recorder", "environment", "replay"]

_LAYER = Path(__file__).with_name("layer.cpp")

_BUILD = Path(__file__).resolve().parents[3] / "build"

#: The plugin is to be the one that is installed here.
_PACKAGES = (
    f"openvino=={openvino.__version__.split('-')[0]}",
    f"numpy=={numpy.__version__}",
    "intel-opencl-rt==2026.2.0",
    "intel-cmplr-lib-rt==2026.2.0",
)

_ENTER = """\
export LD_LIBRARY_PATH={0}/venv/lib OCL_ICD_FILENAMES={0}/venv/lib/libintelocl.so OPENCL_LAYERS={0}/liblayer.so
export LD_PRELOAD={0}/venv/lib/libtbb.so.12
export FAKEGPU_MODE=${{FAKEGPU_MODE:-null}}
unset OCL_ICD_VENDORS
"""

#: Replays what was fed, arrays called by step and input; a step without any is a reset.
_WORKER = """
def run():
    compiled = core.compile_model(core.read_model(path), "GPU", {"INFERENCE_PRECISION_HINT": "f32"})
    request, arrays, answer["outputs"] = compiled.create_infer_request(), numpy.load(%r), []
    for step in range(%r):
        feeds = {name.partition("/")[2]: arrays[name] for name in arrays.files if name.startswith(f"{step}/")}
        if feeds:
            answer["outputs"].append(request.infer(feeds)[%r].tolist())
        else:
            request.reset_state()
"""


@functools.cache
def environment() -> Path:
    """The folder of the environment; the test is skipped where it cannot be made."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("Intel's OpenCL runtime for CPUs is for Linux on x86-64")
    if shutil.which("g++") is None or not Path("/usr/include/CL/cl_layer.h").exists():
        pytest.skip("g++ and OpenCL's headers (opencl-headers) are needed")
    digest = hashlib.sha256(_LAYER.read_bytes() + " ".join(_PACKAGES).encode()).hexdigest()
    folder = _BUILD / f"gpu-on-cpu-{digest[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "env.sh").exists():
            venv.create(folder / "venv", with_pip=True)
            pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", *_PACKAGES]
            compiler = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", folder / "liblayer.so", _LAYER]
            for command in (pip, compiler):
                subprocess.run(command, check=True)
            (folder / "env.sh").write_text(_ENTER.format(folder))
    return folder


def run_inside(*arguments: str) -> str:
    """Run this Python in the environment, with real numbers, and return what it wrote; a failure fails the test."""
    environ = {"FAKEGPU_MODE": "lazy", "FAKEGPU_OPTS": "-cl-opt-disable", "PYTHONPATH": str(Path(__file__).parents[2])}
    script = '. "$0/env.sh" && exec "$@"'
    command = ["/bin/sh", "-c", script, str(environment()), sys.executable, *arguments]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=os.environ | environ, preexec_fn=_stay_on_one_core
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _stay_on_one_core() -> None:
    """Stay there from the start: on one core the plugin computes some things before memory is there for them."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


class Recorder:
    """A request that keeps what it is fed, for `replay`."""

    def __init__(self, request: openvino.InferRequest) -> None:
        self.request = request
        self.model_inputs, self.model_outputs = request.model_inputs, request.model_outputs
        self.feeds: list[dict[str, numpy.ndarray]] = []

    def reset_state(self) -> None:
        self.feeds.append({})
        self.request.reset_state()

    def infer(self, feeds: Mapping[str, Any], **options: Any) -> Any:
        self.feeds.append({name: numpy.array(value) for name, value in feeds.items()})
        return self.request.infer(feeds, **options)


def replay(
    model: OpenVINOModel, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, output: str = "logits"
) -> list[Any]:
    """What ``model`` computes on the GPU plugin, in f32, of what ``recorder`` was fed; one array a step."""
    monkeypatch.setenv("FAKEGPU_MODE", "lazy")
    # Building kernels takes most of the time, and they run once.
    monkeypatch.setenv("FAKEGPU_OPTS", "-cl-opt-disable")
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        arrays = {f"{step}/{name}": fed[name] for step, fed in enumerate(recorder.feeds) for name in fed}
        numpy.savez(file, **arrays)
        file.flush()
        code = _WORKER % (file.name, len(recorder.feeds), output)
        done = run_worker(code, model, "replayed on the GPU plugin", environment())
    assert done.refused is None, done.refused
    return [numpy.array(output_array) for output_array in done.answer["outputs"]]
