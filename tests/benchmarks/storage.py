"""Measure rewriting of a graph by the size of its weights: `python tests/benchmarks/storage.py FOLDER [GB ... | flat]`.

Models of random weights (6 GB: sparse zeros, share alone) are made below FOLDER, which needs about five times the
largest size below that. Each way runs in a process of its own: wall time from reading to the last file, and until the
disk has it (graphpass waits for that by itself, the others do not); CPU time; bytes written; peak memory above
what the imports take, mapped files included. Imports are done before, but by ovc, which is run as the program that it
is. Ways take turns, and of each the least of several runs is told, since whatever else the machine does adds to it. In
the end share is run on models of the same depth and of different sizes. The goals at 1.5 GB: share at least 9 times
faster than save_model, copy 1.5 times; 6 GB within 1.2 times of 0.2 GB; under 100 MB.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

REPEATS = 5
#: Layers of the models that show whether time depends on the size of weights.
FLAT_LAYERS = 12
HIDDEN, HEAD_DIM = 2048, 128
SPARSE = 4.0

Way = Callable[[Path, Path], None]


def make(folder: Path, gigabytes: float, layers: int = 0, *, sparse: bool = False) -> None:
    """A stateless decoder in ONNX with external data; each layer has attention and, unless told how many, 117 MB."""
    import numpy
    from onnx import TensorProto, helper

    folder.mkdir(parents=True)
    width = HIDDEN
    if layers:
        width = round((gigabytes * 1e9 / (28 * layers)) ** 0.5 / HEAD_DIM) * HEAD_DIM
    else:
        layers = max(1, round(gigabytes * 1e9 / (28 * width * width)))
    heads = width // HEAD_DIM
    random = numpy.random.default_rng(0)
    block = random.standard_normal((width, width), numpy.float32) / width**0.5
    offset = 0
    tensors, nodes, inputs, outputs = [], [], [], []

    def weight(name: str, stream) -> str:
        nonlocal offset
        tensor = TensorProto(name=name, data_type=1, dims=[width, width], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "model.onnx.data"), ("offset", offset), ("length", block.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        if not sparse:
            block[0, 0] = len(tensors)
            stream.write(block.tobytes())
        offset += block.nbytes
        tensors.append(tensor)
        return name

    def node(kind: str, *given: str, **attributes) -> str:
        made = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, list(given), [made], name=made, **attributes))
        return made

    def constant(name: str, values, kind=TensorProto.INT64) -> str:
        if all(tensor.name != name for tensor in tensors):
            shape = [len(values)] if isinstance(values, list) else []
            tensors.append(helper.make_tensor(name, kind, shape, values if shape else [values]))
        return name

    with (folder / "model.onnx.data").open("wb") as stream:
        cache = ["batch", heads, "past", HEAD_DIM]
        inputs.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"]))
        inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]))
        hidden = node("Gather", weight("embedding", stream), "input_ids", axis=0)
        split, merge = constant("split", [0, 0, heads, HEAD_DIM]), constant("merge", [0, 0, width])
        axes, scale = constant("axes", [1, 2]), constant("scale", HEAD_DIM**-0.5, TensorProto.FLOAT)
        seen = node("Unsqueeze", node("Cast", "attention_mask", to=TensorProto.FLOAT), axes)
        hide = node("Sub", seen, constant("one", 1.0, TensorProto.FLOAT))
        mask = node("Mul", hide, constant("much", 1e9, TensorProto.FLOAT))
        for layer in range(layers):
            query, key, value = (
                node(
                    "Transpose",
                    node("Reshape", node("MatMul", hidden, weight(f"{layer}.{part}", stream)), split),
                    perm=[0, 2, 1, 3],
                )
                for part in "qkv"
            )
            for part, new in (("key", key), ("value", value)):
                past, present = f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"
                inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, cache))
                outputs.append(
                    helper.make_tensor_value_info(present, TensorProto.FLOAT, ["batch", heads, "total", HEAD_DIM])
                )
                nodes.append(helper.make_node("Concat", [past, new], [present], name=present, axis=2))
            scores = node("MatMul", query, node("Transpose", f"present.{layer}.key", perm=[0, 1, 3, 2]))
            scores = node("Add", node("Mul", scores, scale), mask)
            mixed = node("MatMul", node("Softmax", scores, axis=-1), f"present.{layer}.value")
            mixed = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
            hidden = node("Add", hidden, node("MatMul", mixed, weight(f"{layer}.o", stream)))
            for part in "abc":
                hidden = node("Add", hidden, node("Tanh", node("MatMul", hidden, weight(f"{layer}.{part}", stream))))
        nodes.append(helper.make_node("MatMul", [hidden, weight("head", stream)], ["logits"], name="logits"))
        stream.truncate(offset)
        os.fsync(stream.fileno())
    outputs.insert(0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", width]))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())


def to_ir(source: Path, folder: Path, weights: str) -> None:
    """The stateless IR to start from. (Where onnx.load is measured not shared: it refuses data with a second link.)"""
    import graphpass
    from graphpass.engine.manager import PassManager
    from graphpass.engine.pipeline import parse

    model = PassManager(parse("to-openvino")).run(graphpass.load(source)).model
    graphpass.save(model, folder / "openvino_model.xml", weights=weights)


def _pipeline(source: Path, text: str):
    import graphpass
    from graphpass.engine.manager import PassManager
    from graphpass.engine.pipeline import parse

    return PassManager(parse(text)).run(graphpass.load(source)).model


STATEFUL = "fuse-attention,make-stateful"
REORDER = "insert-reorder"


def graphpass_way(text: str, weights: str, file: str) -> Way:
    def run(source: Path, target: Path) -> None:
        import graphpass

        graphpass.save(_pipeline(source, text), target / file, weights=weights)

    return run


def save_model_way(text: str) -> Way:
    def run(source: Path, target: Path) -> None:
        import openvino

        target.mkdir()
        openvino.save_model(_pipeline(source, text).ov_model, target / "model.xml", compress_to_fp16=False)

    return run


def onnx_way(source: Path, target: Path) -> None:
    import onnx

    target.mkdir()
    onnx.save(onnx.load(source), target / "model.onnx", save_as_external_data=True, location="model.onnx.data")


def graphsurgeon(source: Path, target: Path) -> None:
    import onnx
    import onnx_graphsurgeon

    target.mkdir()
    os.chdir(source.parent)  # where it looks for external data
    exported = onnx_graphsurgeon.export_onnx(onnx_graphsurgeon.import_onnx(onnx.load(source)))
    os.chdir(target)  # where onnx looks whether the data file is there already
    onnx.save(exported, target / "model.onnx", save_as_external_data=True, location="model.onnx.data")


#: task -> way -> what runs; the first is what others are compared with.
WAYS: dict[str, dict[str, Way]] = {
    "IR -> IR stateful, reorder": {
        "save_model": save_model_way(f"{STATEFUL},{REORDER}"),
        "copy": graphpass_way(f"{STATEFUL},{REORDER}", "copy", "m.xml"),
        "share": graphpass_way(f"{STATEFUL},{REORDER}", "share", "m.xml"),
    },
    "ONNX -> IR stateful": {
        "save_model": save_model_way("to-openvino," + STATEFUL),
        "copy": graphpass_way("to-openvino," + STATEFUL, "copy", "m.xml"),
        "share": graphpass_way("to-openvino," + STATEFUL, "share", "m.xml"),
    },
    "ONNX -> ONNX, reorder": {
        "onnx.load/save": onnx_way,
        "graphsurgeon": graphsurgeon,
        "copy": graphpass_way(REORDER + "{form=onnx}", "copy", "model.onnx"),
        "share": graphpass_way(REORDER + "{form=onnx}", "share", "model.onnx"),
    },
}

#: Programs of other tools: task -> way -> module and arguments; what they make is stateless.
PROGRAMS = {
    "ONNX -> IR stateful": {
        "ovc": ["openvino.tools.ovc", "{source}", "--output_model={target}/model.xml", "--compress_to_fp16=False"]
    }
}


def measure(task: str, way: str, source: Path, target: Path) -> None:
    """Run one way in this process, and print what it took as JSON."""
    import onnx  # noqa: F401
    import openvino

    import graphpass
    from graphpass.engine.pipeline import parse

    parse(f"to-openvino,{STATEFUL},{REORDER}")
    graphpass.analyze_caches  # noqa: B018 - imports
    openvino.Core()
    gc.collect()  # what imports left is no matter of what follows
    gc.freeze()
    Path("/proc/self/clear_refs").write_text("5")
    base = _status("VmRSS")
    _tell(lambda: WAYS[task][way](source, target), resource.RUSAGE_SELF, lambda: _status("VmHWM") - base)


def measure_program(task: str, way: str, source: Path, target: Path) -> None:
    """Run one program, and print what it took as JSON; this process stays small, since a child's peak begins at it."""
    module, *arguments = PROGRAMS[task][way]
    program = [sys.executable, "-m", module]
    target.mkdir()
    subprocess.run([*program, "--version"], check=True, capture_output=True)
    base = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    program += [argument.format(source=source, target=target) for argument in arguments]
    _tell(
        lambda: subprocess.run(program, check=True, capture_output=True),
        resource.RUSAGE_CHILDREN,
        lambda: (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - base) * 1024,
    )


def _tell(run: Callable[[], object], who: int, peak: Callable[[], int]) -> None:
    written, used = _written(), resource.getrusage(who)
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    after = resource.getrusage(who)
    os.sync()
    flushed = time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    sys.stdout.write(json.dumps([seconds, flushed, cpu, _written() - written, peak()]) + "\n")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _written() -> int:
    """Bytes given to write calls, copies in the kernel and finished children included."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def runs(task: str, sources: dict[str, tuple[str, Path]], target: Path) -> dict[str, list[float]]:
    """What each way took at the least; they take turns. The way and the model it runs on go by a name."""
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in sources}
    for _ in range(REPEATS):
        for name, (way, source) in sources.items():
            kind = "--program" if way in PROGRAMS.get(task, {}) else "--measure"
            program = [sys.executable, __file__, kind, task, way, str(source), str(target)]
            done = subprocess.run(program, check=True, capture_output=True, text=True)
            rows[name].append(tuple(json.loads(done.stdout.splitlines()[-1])))
            shutil.rmtree(target)
    return {name: [min(column) for column in zip(*rows[name], strict=True)] for name in sources}


def show(size: str, task: str, taken: dict[str, list[float]]) -> None:
    first = next(iter(taken.values()))
    for way, (seconds, flushed, cpu, written, peak) in taken.items():
        pairs = zip((seconds, flushed, cpu), first, strict=False)
        times = " ".join(f"{value:8.2f} {of / value:6.1f}x" for value, of in pairs)
        print(f"{size:>5}  {task:26} {way:14} {times} {written / 1e6:11.2f} {peak / 1e6:8.1f}", flush=True)


def main(folder: Path, sizes: list[float]) -> None:
    times = " ".join(f"{name:>8} {'ratio':>7}" for name in ("seconds", "on disk", "CPU"))
    print(f"{'GB':>5}  {'task':26} {'way':14} {times} {'MB written':>11} {'peak MB':>8}", flush=True)
    for size in sizes:
        work = folder / f"{size:g}"
        make(work / "onnx", size, sparse=size >= SPARSE)
        to_ir(work / "onnx" / "model.onnx", work / "ir", "copy" if size < SPARSE else "share")
        os.sync()
        for task, ways in WAYS.items():
            source = work / "ir" / "openvino_model.xml" if task.startswith("IR") else work / "onnx" / "model.onnx"
            names = [way for way in (*ways, *PROGRAMS.get(task, {})) if size < SPARSE or way == "share"]
            show(f"{size:g}", task, runs(task, {way: (way, source) for way in names}, work / "out"))
        shutil.rmtree(work)
    flat(folder)


def flat(folder: Path) -> None:
    sources = {}
    for size in (0.2, 1.5, 6.0):
        make(folder / f"{size:g}" / "onnx", size, FLAT_LAYERS, sparse=True)
        to_ir(folder / f"{size:g}" / "onnx" / "model.onnx", folder / f"{size:g}" / "ir", "share")
        sources[f"share {size:g} GB"] = ("share", folder / f"{size:g}" / "ir" / "openvino_model.xml")
    task = "IR -> IR stateful, reorder"
    show("flat", task, runs(task, sources, folder / "out"))
    for size in (0.2, 1.5, 6.0):
        shutil.rmtree(folder / f"{size:g}")


if __name__ == "__main__":
    if sys.argv[1] in {"--measure", "--program"}:
        run = measure if sys.argv[1] == "--measure" else measure_program
        run(sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]))
    elif sys.argv[2:] == ["flat"]:
        flat(Path(sys.argv[1]).resolve())
    else:
        main(Path(sys.argv[1]).resolve(), [float(size) for size in sys.argv[2:]] or [0.2, 1.5, 6.0])
