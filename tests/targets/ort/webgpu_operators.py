"""Open GroupQueryAttention on WebGPU, a feature at a time: `python webgpu_operators.py ANSWER.json`.

Writes, by feature, the largest difference from the CPU provider, or the error. The adapter's variables have to be set
before the process starts.
"""

from __future__ import annotations

import json
import os
import sys

import numpy
import onnxruntime
from onnx import TensorProto, helper

from graphpass.runtime.devices.webgpu import webgpu_device

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16
PORTS = {"pk": 4, "pv": 4, "cos": 2, "sin": 2, "bias": 4, "sink": 1, "query": 3, "key": 3, "value": 3}

#: Attributes and further inputs of each feature, by port.
FEATURES = {
    "plain": ({}, {}),
    "scale": ({"scale": 0.3}, {}),
    "window": ({"local_window_size": 4}, {}),
    "smooth": ({"smooth_softmax": 1}, {}),
    "sinks": ({}, {11: "sink"}),
    "bias": ({}, {10: "bias"}),
    "rotary": ({"do_rotary": 1}, {7: "cos", 8: "sin"}),
    "softcap": ({"softcap": 2.0}, {}),
    "not causal": ({"causal": 0}, {}),
}

#: Rows, new tokens and past positions.
STEPS = ((1, 5, 0), (2, 5, 0), (1, 1, 20), (1, 4, 20), (2, 1, 20))


def model(attributes: dict, further: dict[int, str], *, packed: bool) -> bytes:
    names = ["query", *(["", ""] if packed else ["key", "value"]), "pk", "pv", "lengths", "total"]
    names += [further.get(port, "") for port in range(7, 12)]
    while not names[-1]:
        names.pop()
    node = helper.make_node("GroupQueryAttention", names, ["y", "k", "v"], name="attention", domain="com.microsoft",
                            num_heads=HEADS, kv_num_heads=KV_HEADS, **attributes)  # fmt: skip
    kinds = {"lengths": (TensorProto.INT32, [None]), "total": (TensorProto.INT32, [])}
    ports = [
        helper.make_tensor_value_info(name, *kinds.get(name, (TensorProto.FLOAT, [None] * PORTS.get(name, 1))))
        for name in names
        if name
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "k", "v")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", ports, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def feeds(names: set[str], rows: int, new: int, past: int, *, packed: bool) -> dict[str, numpy.ndarray]:
    width = KV_HEADS * HEAD_DIM
    shapes = {
        "query": (rows, new, HEADS * HEAD_DIM + (2 * width if packed else 0)),
        **dict.fromkeys(("key", "value"), (rows, new, width)),
        **dict.fromkeys(("pk", "pv"), (rows, KV_HEADS, past, HEAD_DIM)),
        **dict.fromkeys(("cos", "sin"), (64, HEAD_DIM // 2)),
        "bias": (rows, 1, new, past + new),
        "sink": (HEADS,),
    }
    random = numpy.random.default_rng(0)
    given = {name: random.standard_normal(shape, numpy.float32) for name, shape in shapes.items()}
    given["lengths"], given["total"] = (
        numpy.full(rows, past + new - 1, numpy.int32),
        numpy.array(past + new, numpy.int32),
    )
    return {name: given[name] for name in names}


def difference(proto: bytes, *, packed: bool) -> float | str:
    sessions = []
    for on_gpu in (False, True):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if on_gpu:
            options.add_provider_for_devices([webgpu_device()], {})
        try:
            sessions.append(
                onnxruntime.InferenceSession(proto, options, providers=None if on_gpu else ["CPUExecutionProvider"])
            )
        except onnxruntime.capi.onnxruntime_pybind11_state.EPFail as error:
            return str(error)
    names, largest = {port.name for port in sessions[0].get_inputs()}, 0.0
    for step in STEPS:
        left, right = (session.run(None, feeds(names, *step, packed=packed)) for session in sessions)
        largest = max(largest, *(float(numpy.abs(one - other).max()) for one, other in zip(left, right, strict=True)))
    return largest


if __name__ == "__main__":
    found = {
        f"{name}, packed" if packed else name: difference(model(*given, packed=packed), packed=packed)
        for name, given in FEATURES.items()
        for packed in (False, True)
    }
    with open(sys.argv[1], "w") as answer:
        json.dump(found, answer)
    # Drivers crash now and then at the end of a process.
    os._exit(0)
