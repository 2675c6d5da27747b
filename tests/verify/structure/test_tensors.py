"""Tensors of unknown rank, and elements of random graphs."""

from __future__ import annotations

import math
from random import Random

import numpy
import onnx
import onnx.parser
import onnxruntime
import pytest
from verify.structure.comparing import comparer_of
from verify.structure.numbers_of_expressions import NoNumbersError, Numbers
from verify.structure.random_graphs import INPUTS, RandomGraph

from graphpass.analysis.symbolic import expressions as ex
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import compare_structures

OPEN = """
<ir_version: 10, opset_import: ["" : 21]>
scores (float[B, N] x, int64[R] dims, float[B, 1, N] mask) => (float[B, H, N] y) {
  open = Reshape(x, dims)
  sizes = Shape(open)
  last = Constant<value_ints = [-1]>()
  heads = Constant<value_ints = [-1, 4]>()
  length = Gather(sizes, last)
  target = Concat<axis = 0>(heads, length)
  rows = Reshape(open, target)
  y = Add(rows, mask)
}
"""


def test_sizes_assumed_of_an_open_rank_are_compared():
    texts = OPEN, OPEN.replace("Add(rows, mask)", "Sub(rows, mask)")
    found = compare_structures(*(OnnxModel(onnx.parser.parse_model(text)) for text in texts))
    assert found is not None
    assert found.regions


#: Sizes of the inputs of random graphs, and number of elements that are compared.
_SHAPE, _ELEMENTS = (2, 6, 4), 8


def different_element(seed: int, operators: int) -> str | None:
    """Return an element whose expression differs from ONNX Runtime's number, as text."""
    graph, generator = RandomGraph(seed, operators), numpy.random.default_rng(seed)
    last = graph.tensors[-1]
    axes = ", ".join(f"d{axis}" for axis in range(len(last.sizes)))
    body = "\n".join([*graph.lines, f"logits = Cast <to = 1> ({last.name})"])
    text = f"""<ir_version: 9, opset_import: ["": 19]> random ({INPUTS}) => (float[{axes}] logits) {{ {body} }}"""
    model = OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    reals = generator.choice([-1.5, -1, 0, 0.5, 2, 3], (2, *_SHAPE)).astype("f4")
    inputs = {"x": reals[0], "z": reals[1], "i": generator.integers(0, 4, _SHAPE), "m": generator.random(_SHAPE) < 0.5}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), options, ["CPUExecutionProvider"])
    (expected,) = session.run(["logits"], inputs)
    tensors = comparer_of(model, model.clone(), "logits", unpadded=False).sides[0]
    value = model.graph.writes["logits"].source()
    pairs = [
        pair
        for name, array in inputs.items()
        for pair in zip(tensors.shape(model.graph.parameters[name]), array.shape, strict=True)
    ]
    caches = {("cache", name): array for name, array in inputs.items()}
    numbers = Numbers({**inputs, **caches}, {size: count for size, count in pairs if size.op == "length"})
    whole, own = tensors.whole(value), tensors.own_index(value)
    assert tuple(numbers.of(size, {}) for size in tensors.shape(value)) == expected.shape
    for place in Random(seed).choices([*numpy.ndindex(expected.shape)], k=_ELEMENTS):
        places = {index: at for index, at in zip(own, place, strict=True) if index is not ex.ZERO}
        try:
            found = numbers.of(whole, places)
        except NoNumbersError:
            return None
        if math.isfinite(expected[place]) and not math.isclose(found, expected[place], rel_tol=1e-3, abs_tol=1e-3):
            return f"{found} at {place}, expected {expected[place]}: {body}"
    return None


@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_elements_of_random_graphs_are_those_of_onnx_runtime(first):
    for seed in range(first, first + max(first, 40)):
        assert different_element(seed, 6) is None, f"seed {seed}"
