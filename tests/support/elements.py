"""Elements of an output as expressions, evaluated, beside what a runtime computes."""

from __future__ import annotations

from typing import Any

import numpy
import openvino

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.ir.types import Dialect
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
from graphpass.testing import parse_model

Array = numpy.ndarray[Any, Any]


def evaluated(text: str, dialect: Dialect = "onnx", opset: int = 21, **inputs: Any) -> tuple[Array, Array]:
    """Return output ``y`` by symbolic rules and by a runtime.

    Raises:
        LookupError: An element is opaque; the message is the reason.
    """
    model = parse_model(f"{text}\nResult(%y) {{name=y}}", dialect, opset=opset)
    arrays = {name: numpy.asarray(array) for name, array in inputs.items()}
    computed: Array
    if dialect == "onnx":
        computed = OnnxRuntimeRequest(model, True).infer(arrays)["y"]  # type: ignore[arg-type]
    else:
        compiled = openvino.Core().compile_model(model.ov_model, "CPU")  # type: ignore[attr-defined]
        computed = compiled(arrays)["y"]
    value, elements = model.graph.writes["y"].source(), model.analysis(find_elements)
    indices = tuple(ex.index(axis, ex.number(size)) for axis, size in enumerate(computed.shape))
    expr = elements.of(value, indices)
    for part in ex.walk(expr):
        if part in elements.misses:
            raise LookupError(elements.misses[part].reason)
    found = numpy.zeros(computed.shape, computed.dtype)
    for place in numpy.ndindex(*computed.shape):
        values = dict(zip(indices, place, strict=True))
        found[place] = value_at(expr, values, lambda part, at: _element(arrays[part.args[0]], at))
    return found, computed


def _element(array: Array, at: tuple[int, ...]) -> Any:
    """Return an element; a number found nowhere else for indices that a choice excludes."""
    is_inside = all(0 <= place < size for place, size in zip(at, array.shape, strict=True))
    return array[at].item() if is_inside else 12345


def computed_shape(text: str, **inputs: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of output ``y`` by symbolic rules and by ONNX Runtime.

    Raises:
        LookupError: The rules leave a size open.
    """
    model = parse_model(f"{text}\nResult(%y) {{name=y}}")
    arrays = {name: numpy.asarray(array) for name, array in inputs.items()}
    shape = model.analysis(find_elements).shape(model.graph.writes["y"].source())
    lengths = {
        ex.length(f"dimension {name}"): size
        for port in model.inputs
        for name, size in zip(port.shape or (), arrays[port.name].shape, strict=True)
    }
    if any(part.op == "length" and part not in lengths for part in ex.walk(*shape)):
        raise LookupError("a size is open")
    found = tuple(int(value_at(size, lengths, lambda part, at: _element(arrays[part.args[0]], at))) for size in shape)
    return found, OnnxRuntimeRequest(model, True).infer(arrays)["y"].shape  # type: ignore[arg-type]
