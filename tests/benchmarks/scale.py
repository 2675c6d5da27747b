"""Measure commands by the number of layers: `python tests/benchmarks/scale.py FOLDER [passes|masks|peers|large|curve]`.

Models of real shapes whose weights are holes in a sparse file (see tests/support/scale.py) are made below FOLDER. Each
run is a process of its own; of each the processor's time (user and system), the time on the clock and the peak of
memory are taken; runs of what is compared take turns, and medians are told. Peers are measured on the same files:
openvino.convert_model and ovc, and onnxsim and onnxslim if they are installed, each with a limit of ten minutes.

passes: all passes of the targets on 24 and 80 layers of the 0.5B shape, with openvino.convert_model beside them. Goals:
cpu at most 4.5 s and 0.5 of convert_model on 24 layers, 80 layers at most 3.6 times that, other targets 1.5 times cpu.
masks: the masks of both models of a conversion for cpu, read and compared for every length. Goal: 80
layers in 1 s.
large: commands on the 70B shape in f16. Goals: convert --weights share 30 s, 600 MB at the peak, 200 MB written;
inspect 3 s, check 6 s, diff 10 s.
curve: every command on 10 to 160 layers. Goal: a layer at 160 costs at most 1.3 times what it costs at 20.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.scale import scaled

REPEATS = 3
LAYERS = (10, 20, 40, 80, 160)
TARGETS = ("cpu", "gpu", "npu", "paged", "ort")
_LIMIT = 600
_GRAPHPASS = (sys.executable, "-m", "graphpass.cli")


class Task(NamedTuple):
    """A program, and the folder that it makes, which is removed before each run."""

    program: Sequence[str]
    out: Path | None = None


class Cost(NamedTuple):
    """Seconds of the processor, seconds on the clock, and the peak of memory in MB."""

    cpu: float
    clock: float
    memory: float


def measured(task: Task) -> Cost | None:
    """Measure a task; return nothing if it does not end in time. Findings (exit code 1) are not a failure."""
    if task.out is not None:
        shutil.rmtree(task.out, ignore_errors=True)
    start = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(task.program, stdout=said, stderr=subprocess.STDOUT)
        timer = threading.Timer(_LIMIT, child.kill)
        timer.start()
        _, status, used = os.wait4(child.pid, 0)
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        clock = time.perf_counter() - start
        said.seek(0)
        words = said.read().decode()
    if child.returncode == -signal.SIGKILL and clock >= _LIMIT:
        return None
    if child.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(task.program)} ended with {child.returncode}:\n{words[-2000:]}")
    if task.program[1] == __file__:
        return Cost(*json.loads(words.splitlines()[-1]))
    return Cost(used.ru_utime + used.ru_stime, clock, used.ru_maxrss / 1e3)


def medians(tasks: Mapping[str, Task], repeats: int = REPEATS) -> dict[str, Cost | None]:
    """Medians over runs that take turns."""
    runs: dict[str, list[Cost | None]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            if None not in runs[name]:
                runs[name].append(measured(task))
    return {
        name: None if None in costs else Cost(*map(statistics.median, zip(*costs, strict=True)))
        for name, costs in runs.items()
    }


def show(name: str, cost: Cost | None, first: Cost | None = None, note: str = "") -> None:
    if cost is None:
        print(f"{name:42} more than {_LIMIT} s", flush=True)
        return
    ratio = f"{cost.cpu / first.cpu:6.2f}x" if first is not None else " " * 7
    print(f"{name:42} {cost.cpu:8.2f} {cost.clock:8.2f} {cost.memory:8.0f}  {ratio}  {note}", flush=True)


def head(title: str) -> None:
    print(f"\n{title:42} {'CPU s':>8} {'clock s':>8} {'peak MB':>8}  {'ratio':>7}", flush=True)


def passes(folder: Path) -> None:
    """All passes of the targets, and what openvino.convert_model takes."""
    tasks: dict[str, Task] = {}
    for layers in (24, 80):
        model = str(_model("llama", "0.5B", folder, layers))
        tasks |= {f"{target}, {layers} layers": _inner("--passes", target, model) for target in TARGETS}
        tasks[f"convert_model, {layers} layers"] = _inner("--convert-model", model)
    taken = medians(tasks)
    head("all passes of a target, without start-up")
    for name, cost in taken.items():
        show(name, cost, taken[f"cpu, {name.split()[1]} layers"])
    for target in TARGETS:
        small, large = taken[f"{target}, 24 layers"], taken[f"{target}, 80 layers"]
        if small is not None and large is not None:
            print(f"{target}: 80 layers take {large.cpu / small.cpu:.2f} times as long as 24", flush=True)


def masks(folder: Path) -> None:
    """Reading and comparing the masks of a model and of its conversion."""
    models = {f"{layers} layers": _model("llama", "0.5B", folder, layers) for layers in (24, 80)}
    taken = medians({name: _inner("--masks", str(model)) for name, model in models.items()})
    head("masks of both models, read and compared")
    for name, cost in taken.items():
        show(name, cost, taken["24 layers"])


def peers(folder: Path) -> None:
    """Whole programs on the 24-layer model, ours and others."""
    model, out = str(_model("llama", "0.5B", folder, 24)), folder / "out"
    tasks = {
        "graphpass convert --no-verify, share": _convert(model, out, "cpu"),
        "ovc": Task((sys.executable, "-m", "openvino.tools.ovc", model, f"--output_model={out}/m.xml"), out),
    }
    for module in ("onnxsim", "onnxslim"):
        if importlib.util.find_spec(module):
            program = (sys.executable, "-m", module, model, str(folder / f"{module}.onnx"), "--save-as-external-data")
            tasks[module] = Task(program)
    taken = medians(tasks)
    head("whole programs, 24 layers")
    for name, cost in taken.items():
        show(name, cost, next(iter(taken.values())))


def large(folder: Path) -> None:
    """Commands on the model of 140 GB."""
    model, out = str(_model("llama_f16", "70B", folder, 80)), folder / "out-70B"
    made = measured(_convert(model, out, "cpu"))
    written = sum(file.stat().st_size for file in out.iterdir() if file.stat().st_nlink == 1)
    result = str(out / "openvino_model.xml")
    taken = medians(
        {
            "inspect": _graphpass("inspect", model),
            "inspect of the result": _graphpass("inspect", result),
            "check --no-confirm": _graphpass("check", "--target", "cpu", "--no-confirm", result),
            "diff": _graphpass("diff", model, result),
        }
    )
    head("70B shape, 80 layers, f16")
    show("convert --no-verify, share", made, note=f"{written / 1e6:.0f} MB written")
    for name, cost in taken.items():
        show(name, cost)
    shutil.rmtree(out)


def curve(folder: Path) -> None:
    """Every command by layers: seconds after the same on a tiny model, and what a layer costs at 160 against 20."""
    first = _commands(folder, "tiny", 4)
    tasks = {layers: _commands(folder, "0.5B", layers) for layers in LAYERS}
    print(f"\n{'CPU s without start-up':34}" + "".join(f"{layers:>8}" for layers in LAYERS) + "  160/20 a layer")
    for name, warm in first.items():
        taken = medians({str(layers): _second(warm, tasks[layers][name]) for layers in LAYERS})
        costs = [float("nan") if cost is None else cost.cpu for cost in taken.values()]
        a_layer = [cost / layers for cost, layers in zip(costs, LAYERS, strict=True)]
        print(f"{name:34}" + "".join(f"{cost:8.2f}" for cost in costs) + f"{a_layer[-1] / a_layer[1]:8.2f}", flush=True)


def _commands(folder: Path, size: str, layers: int) -> dict[str, Task]:
    model, kept, out = str(_model("llama", size, folder, layers)), folder / f"result-{size}-{layers}", folder / size
    result = str(kept / "openvino_model.xml")
    if not kept.exists():
        measured(_convert(model, kept, "cpu"))
    given = ("--no-verify", "--weights", "share", "-o")
    tasks = {
        "inspect": _graphpass("inspect", model),
        "inspect of the result": _graphpass("inspect", result),
        "why": _graphpass("why", model, "past_key_values.3.key"),
        "check --no-confirm": _graphpass("check", "--target", "cpu", "--no-confirm", result),
        "diff": _graphpass("diff", model, result),
        "static-cache": _graphpass(
            "run", model, "-p", "static-cache{capacity=4096}", *given, f"{out}/model.onnx", out=out
        ),
        "pack": _graphpass("run", result, "-p", "pack", *given, f"{out}/m.xml", out=out),
        "split": _graphpass("split", model, "--prompt", "1024", "--capacity", "4096", *given, str(out), out=out),
    }
    return tasks | {f"convert --target {target}": _convert(model, out, target) for target in TARGETS}


def _second(warm: Task, task: Task) -> Task:
    """A process that measures one task of graphpass after another, which imports and compiles what both need."""
    lines = (json.dumps(one.program[len(_GRAPHPASS) :]) for one in (warm, task))
    return Task((sys.executable, __file__, "--command", *lines), task.out)


def _model(name: str, size: str, folder: Path, layers: int) -> Path:
    place = folder / f"{name}-{size}-{layers}"
    return place / "model.onnx" if (place / "model.onnx").exists() else scaled(name, size, place, layers=layers)


def _convert(model: str, out: Path, target: str) -> Task:
    options = ("--no-verify", "--weights", "share", "--allow-unfused", "--target", target)
    return _graphpass("convert", model, *options, "-o", str(out), out=out)


def _graphpass(*arguments: str, out: Path | None = None) -> Task:
    return Task((*_GRAPHPASS, *arguments), out)


def _inner(*arguments: str) -> Task:
    return Task((sys.executable, __file__, *arguments))


def _time_passes(target: str, model: str) -> None:
    from graphpass import PassManager, load
    from graphpass.engine.pipeline import parse_target

    tiny = load(_model("llama", "tiny", Path(model).parents[1], 4))
    PassManager(parse_target(target).pipeline(tiny)).run(tiny)  # imports
    loaded = load(model)
    steps = parse_target(target).pipeline(loaded)
    _tell(lambda: PassManager(steps).run(loaded))


def _time_masks(model: str) -> None:
    from graphpass import PassManager, load
    from graphpass.analysis.caches.inventory import analyze_caches
    from graphpass.analysis.caches.masks import find_masks
    from graphpass.engine.pipeline import parse_target
    from graphpass.verify.masks import EqualMasks, compare_masks

    def compared(models: tuple[object, object]) -> None:
        left, right = (one.analysis(find_masks) for one in models)
        known = {(one.visible, other.visible): (one, other) for one, other in zip(left, right, strict=True)}
        if not all(isinstance(compare_masks(*pair), EqualMasks) for pair in known.values()):
            sys.exit("the masks differ")

    pairs = []
    for path in (str(_model("llama", "tiny", Path(model).parents[1], 4)), model):
        loaded = load(path)
        pairs.append((loaded, PassManager(parse_target("cpu").pipeline(loaded)).run(loaded).model))
    for one in (*pairs[0], *pairs[1]):
        analyze_caches(one)
    compared(pairs[0])  # imports
    _tell(lambda: compared(pairs[1]))


def _time_command(warm: str, arguments: str) -> None:
    from graphpass.cli.main import main

    main(json.loads(warm))
    _tell(lambda: main(json.loads(arguments)))


def _time_convert_model(model: str) -> None:
    import openvino

    openvino.convert_model(_model("llama", "tiny", Path(model).parents[1], 4))
    _tell(lambda: openvino.convert_model(model))


def _tell(work: Callable[[], object]) -> None:
    """Print what the work took, imports and reading apart, in place of what the process takes."""
    import resource

    cpu, clock = time.process_time(), time.perf_counter()
    work()
    cost = Cost(
        time.process_time() - cpu, time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    )
    print(json.dumps(cost))


def main(folder: Path, parts: Sequence[str]) -> None:
    known = {"passes": passes, "masks": masks, "peers": peers, "large": large, "curve": curve}
    for part in parts or known:
        known[part](folder)


if __name__ == "__main__":
    if sys.argv[1] == "--passes":
        _time_passes(*sys.argv[2:])
    elif sys.argv[1] == "--masks":
        _time_masks(*sys.argv[2:])
    elif sys.argv[1] == "--command":
        _time_command(*sys.argv[2:])
    elif sys.argv[1] == "--convert-model":
        _time_convert_model(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]).resolve(), sys.argv[2:])
