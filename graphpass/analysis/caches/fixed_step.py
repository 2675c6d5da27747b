"""Find the number of new tokens or of past positions that an export fixes."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import step_elements
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.step import LENGTH
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.types import is_fixed


def fixed_step(model: Model) -> int | None:
    """Return the number of new tokens of each step, if fixed to more than 1.

    It is the length of the input of tokens. Some exporters leave it open, and fix all sizes of the logits.

    Args:
        model: A model with caches; the result is ``None`` for others.
    """
    tokens = token_input(model.graph)
    if tokens is None or not analyze_caches(model).caches:
        return None
    shapes = [tokens.shape, *(port.shape for port in model.outputs if port.name == "logits")]
    lengths = (shape[1] for shape in shapes if shape is not None and len(shape) > 1 and is_fixed(shape))
    return next((size for size in lengths if isinstance(size, int) and size > 1), None)


def single_token(model: Model) -> Node | None:
    """Return a Squeeze that removes the axis of new tokens.

    Steps of several tokens fail there.

    Args:
        model: A model with caches; the result is ``None`` for others, and if its inputs have one token.
    """
    caches = analyze_caches(model).caches
    if not caches:
        return None
    elements = step_elements(model, caches)

    def removes_tokens(node: Node) -> bool:
        try:
            sizes = elements.shape(node.source())
        except UnknownError:
            return False
        return any(sizes[axis] is LENGTH for axis in node.attributes.get("axes") or ())

    strict = (node for node in model.graph.of_op("Squeeze") if not native_attributes(node).get("allow_axis_skip"))
    return next((node for node in strict if removes_tokens(node)), None)


def fixed_past(model: Model) -> int | None:
    """Return the number of positions before each step, if fixed for a cache that grows.

    A cache whose past and present have one fixed size is a buffer, and runs.

    Args:
        model: A model with caches as inputs and outputs; the result is ``None`` for others.
    """
    for cache in analyze_caches(model).of_kind("kv"):
        axis = cache.axes.sequence
        if cache.capacity is None or axis is None or cache.write is None or cache.read not in model.graph.parameters:
            continue
        shape = model.graph.writes[cache.write].source().shape
        if shape is not None and isinstance(shape[axis], int) and shape[axis] != cache.capacity:
            return cache.capacity
    return None
