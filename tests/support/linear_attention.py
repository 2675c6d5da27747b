"""Models of one LinearAttention operator of ONNX Runtime, and what they are fed."""

from __future__ import annotations

from typing import Any

import numpy
import onnxruntime
from hypothesis import strategies as st
from onnx import TensorProto, helper

from graphpass.dialects.onnx.model import OnnxModel

KEY_DIM, VALUE_DIM = 8, 6
RULES = ["linear", "gated", "delta", "gated_delta"]

#: Arguments of `build`, and lengths of prompts that follow one another.
FORMS = st.fixed_dictionaries(
    {
        "rule": st.sampled_from(RULES),
        "rows": st.booleans(),
        "one_beta": st.booleans(),
        "past": st.booleans(),
        "scale": st.sampled_from([0.0, 0.3]),
    }
)
HEAD_COUNTS = st.sampled_from([(4, 4), (4, 2), (6, 2), (2, 4), (1, 3), (1, 1)])
CHUNKS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def build(
    rule: str = "gated_delta",
    heads: int = 4,
    kv_heads: int = 4,
    *,
    rows: bool = False,
    one_beta: bool = False,
    past: bool = True,
    key_heads: int | None = None,
    **attributes: Any,
) -> OnnxModel:
    """Inputs query, key, value [, past] [, decay] [, beta]; outputs attended and present."""
    state = ["batch", kv_heads, KEY_DIM, VALUE_DIM]
    shapes: dict[str, list[int | str]] = {
        "query": ["batch", "length", heads * KEY_DIM],
        "key": ["batch", "length", (key_heads or kv_heads) * KEY_DIM],
        "value": ["batch", "length", kv_heads * VALUE_DIM],
        "past": state if past else [],
        "decay": ["batch", "length", kv_heads * (KEY_DIM if rows else 1)] if "gated" in rule else [],
        "beta": ["batch", "length", 1 if one_beta else kv_heads] if "delta" in rule else [],
    }
    names = [name if shape else "" for name, shape in shapes.items()]
    while not names[-1]:
        names.pop()
    attributes |= {"update_rule": rule, "q_num_heads": heads, "kv_num_heads": kv_heads}
    attributes = {"domain": "com.microsoft"} | attributes
    node = helper.make_node("LinearAttention", names, ["attended", "present"], "layer", **attributes)
    outputs = {"attended": ["batch", "length", max(heads, kv_heads) * VALUE_DIM], "present": state}
    graph = helper.make_graph(
        [node],
        "linear_attention",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names if name],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def feeds(model: OnnxModel, length: int, random: numpy.random.Generator) -> dict[str, numpy.ndarray]:
    arrays = {}
    for port in model.inputs:
        shape = [{"batch": 2, "length": length}.get(size, size) for size in port.shape or ()]
        arrays[port.name] = random.standard_normal(shape).astype(numpy.float32)
    arrays["key"] /= 4
    if "decay" in arrays:
        arrays["decay"] = -numpy.abs(arrays["decay"])
    if "beta" in arrays:
        arrays["beta"] = 1 / (1 + numpy.exp(-arrays["beta"]))
    return arrays


def session(model: OnnxModel) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])


def compute_the_same(reference: OnnxModel, candidate: OnnxModel, lengths: list[int]) -> None:
    """Run both on the same random chunks; the state goes on if there is a past."""
    sessions, random, state = (session(reference), session(candidate)), numpy.random.default_rng(1), None
    for length in lengths:
        fed = feeds(reference, length, random)
        if "past" in fed and state is not None:
            fed["past"] = state
        expected, actual = (each.run(None, fed) for each in sessions)
        state = expected[1]
        for want, got in zip(expected, actual, strict=True):
            numpy.testing.assert_allclose(got, want, atol=1e-4)
