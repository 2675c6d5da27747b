"""Commands end within their limits of time and memory, and outlive libraries that crash."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from support.commands import in_process, in_subprocess
from support.models import export


def with_nodes(folder, *nodes):
    """The fixture llama, with ``nodes`` whose result ``made`` its logits need."""
    proto = onnx.load(export("llama", "onnx") / "model.onnx")
    for node in proto.graph.node:
        node.output[:] = ["logits before" if name == "logits" else name for name in node.output]
    nothing = helper.make_node("Constant", [], ["nothing"], value_float=0.0)
    end = [
        helper.make_node("ReduceMax", ["made"], ["largest"], keepdims=0),
        helper.make_node("Cast", ["largest"], ["as float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["as float", "nothing"], ["zero"]),
        helper.make_node("Add", ["logits before", "zero"], ["logits"]),
    ]
    proto.graph.node.extend([*nodes, nothing, *end])
    onnx.save(proto, folder / "model.onnx")
    return folder


@pytest.fixture
def endless(tmp_path):
    """A model with a loop of 10^15 trips."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go on"]), helper.make_node("Abs", ["x"], ["x2"])],
        "body",
        [helper.make_tensor_value_info(*one) for one in (("i", 7, []), ("go", 9, []), ("x", 7, None))],
        [helper.make_tensor_value_info(*one) for one in (("go on", 9, []), ("x2", 7, None))],
    )
    trips = helper.make_node("Constant", [], ["trips"], value_int=10**15)
    loop = helper.make_node("Loop", ["trips", "", "input_ids"], ["made"], body=body)
    return with_nodes(tmp_path, trips, loop)


def test_an_endless_trial_ends_with_the_time(endless, tmp_path):
    done = in_subprocess("check", endless, "--target", "ort", "--timeout", "3s")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("error: GP407: the command did not end within 3 s\nhint: raise --timeout")


def test_a_trial_exceeding_the_memory_limit(tmp_path):
    first = helper.make_node("Shape", ["input_ids"], ["0"])
    doubling = [helper.make_node("Concat", [str(i), str(i)], [str(i + 1)], axis=0) for i in range(40)]
    with_nodes(tmp_path, first, *doubling, helper.make_node("Identity", ["40"], ["made"]))
    done = in_subprocess("check", tmp_path, "--target", "ort", "--memory", "600MB")
    assert done.code == 4
    assert done.err.startswith("error: GP395: the command took ")
    assert done.err.endswith("\nhint: raise --memory, or use a machine with more memory\n")  # check has no --no-verify


def started(*arguments):
    """Start a command, and return it and the child that does its work."""
    command = [sys.executable, "-m", "graphpass.cli", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (found := children.read_text().split()):
        assert process.poll() is None
    return process, int(found[0])


@pytest.mark.parametrize("ending", ["SIGSEGV", "SIGKILL"])
def test_a_crash_of_a_library_is_reported(endless, ending):
    process, child = started("check", endless, "--target", "ort")
    os.kill(child, getattr(signal, ending))
    _, errors = process.communicate()
    assert process.returncode == 5
    assert f"error: GP406: signal {ending} ended the command" in errors


@pytest.mark.parametrize(("sent", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
@pytest.mark.parametrize("seconds", [0, 0.3, 0.6])
def test_signals_reach_the_work(tmp_path, sent, code, seconds):
    process, child = started("convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "ort")
    usage = Path(f"/proc/{child}/stat")
    while sum(map(int, usage.read_text().rpartition(")")[2].split()[11:13])) < seconds * os.sysconf("SC_CLK_TCK"):
        assert process.poll() is None
    process.send_signal(getattr(signal, sent))
    process.communicate()
    assert process.returncode == code
    assert not [*tmp_path.glob("out"), *tmp_path.glob(".graphpass-*")]


def test_a_signal_in_an_import_waits_for_its_end():
    """Send it to the child as a library in C++ is imported."""
    script = (
        "import os, signal, sys\nfrom graphpass.cli.__main__ import run\n"
        "class Ending:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'onnx':\n            os.kill(os.getpid(), signal.SIGTERM)\n"
        "            print('imported on', file=sys.stderr)\n"
        "sys.meta_path.insert(0, Ending())\nrun()\n"
    )
    program = [sys.executable, "-c", script, "check", str(export("llama", "onnx")), "--target", "ort"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "imported on\n")


@pytest.mark.parametrize("option", [("--timeout", "soon"), ("--timeout", "5"), ("--memory", "8")])
def test_invalid_limits(capfd, option):
    done = in_process(capfd, "inspect", export("llama", "onnx"), *option)
    assert done.code == 2
    assert f"got '{option[1]}'" in done.err
