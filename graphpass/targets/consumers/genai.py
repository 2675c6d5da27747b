"""openvino.genai's view, which classifies variables by the shapes of their initializers.

Sources, of openvino.genai at da1db864:

- ``src/cpp/src/utils.cpp``: ``get_cache_types``, ``get_kv_axes_pos`` and ``trim_kv_cache``
- ``src/cpp/src/llm/pipeline_stateful.cpp`` and ``src/cpp/src/lm_encoding.cpp``: inputs and outputs

Observed with openvino-genai 2026.4.1: it treats a fourth input of any name (mamba's ``cache_position``) as
``position_ids``, and the pipeline fails.
"""

from __future__ import annotations

from graphpass.engine.view import Sees, View, is_mistaken, judged, listed, names_of, not_stateful_ir
from graphpass.ir.cache import Inventory
from graphpass.ir.inputs import TOKEN_INPUTS, VISUAL_FEATURES, VISUAL_MASK
from graphpass.ir.model import Model
from graphpass.ir.types import Dimension, shape_text

CONSUMER = "openvino.genai"

Shape = tuple["Dimension", ...] | None

_FED = frozenset(
    {*TOKEN_INPUTS, *(VISUAL_MASK, VISUAL_FEATURES), "attention_mask", "position_ids", "token_type_ids", "beam_idx"}
)


def view(model: Model, inventory: Inventory) -> View:
    """Return the caches of ``model`` as openvino.genai's ``LLMPipeline`` classifies them.

    Args:
        model: The model; the rule is for stateful OpenVINO IR only.
        inventory: The caches of the model, which the view is compared with.
    """
    outside = not_stateful_ir(
        CONSUMER, model, inventory, finds="initializers", cross="runs language models without an encoder"
    )
    if outside is not None:
        return outside
    initializers = _initializers(model)
    sees: dict[str, Sees] = {name: cache_type(shape) for name, shape in initializers.items()}
    problems = [*_misread(inventory, initializers, sees), *_trimmed(inventory, initializers, sees), *_ports(model)]
    return judged(CONSUMER, inventory, sees, problems)


def cache_type(shape: Shape) -> Sees:
    """Return the kind that ``get_cache_types`` infers from the shape of a variable's initializer."""
    if shape is None or shape.count(None) != 1:
        return "nothing"
    zeros = shape.count(0)
    if len(shape) == 3:
        return "linear"
    if len(shape) == 4 and zeros <= 1:
        return "kv" if zeros else "linear"
    return "nothing"


def kv_axes(shapes: list[Shape]) -> tuple[int, int]:
    """Return the axes of batch and sequence that ``get_kv_axes_pos`` infers.

    Args:
        shapes: Shapes of the initializers, in the order of ``get_ops``; ``None`` for variables without initializer.
    """
    batch, sequence = 0, 2
    first = next((shape for shape in shapes if shape is not None and len(shape) == 4), ())
    for axis, size in enumerate(first or ()):
        if size == 0:
            sequence = axis
        elif size is None:
            batch = axis
    return batch, sequence


def _initializers(model: Model) -> dict[str, Shape]:
    """Return the shape of each variable's initializer, in the order of ``get_ops``."""
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.dialects.openvino.ports import shape_of

    assert isinstance(model, OpenVINOModel)
    reads = [op for op in model.ov_model.get_ops() if op.get_type_name() == "ReadValue"]
    return {
        op.get_attributes()["variable_id"]: shape_of(op.get_input_partial_shape(0)) if op.get_input_size() else None
        for op in reads
    }


def _misread(inventory: Inventory, initializers: dict[str, Shape], sees: dict[str, Sees]) -> list[str]:
    causes: dict[tuple[Sees, str], list[str]] = {}
    for cache in inventory.caches:
        seen = sees.get(cache.name, "nothing")
        if is_mistaken(cache, seen):
            causes.setdefault((seen, _cause(initializers.get(cache.name), seen)), []).append(cache.name)
    verbs = {"kv": "treat {} as a KV cache", "linear": "treat {} as a linear cache", "nothing": "overlook {}"}
    return [f"will {verbs[seen].format(listed(names))} because {cause}" for (seen, cause), names in causes.items()]


def _cause(shape: Shape, seen: Sees) -> str:
    if shape is None:
        return "it has no initializer of known rank"
    zeros, free = shape.count(0), shape.count(None)
    if seen == "kv":
        why = "one dynamic dimension and one of size 0"
    elif seen == "linear":
        why = "one dynamic dimension and none of size 0"
    elif len(shape) not in {3, 4}:
        why = f"rank {len(shape)}"
    elif free != 1:
        why = f"{free or 'no'} dynamic dimension{'' if free == 1 else 's'}, expected one"
    else:
        why = f"{zeros} dimensions of size 0"
    return f"its initializer has shape {shape_text(shape)}: {why}"


def _trimmed(inventory: Inventory, initializers: dict[str, Shape], sees: dict[str, Sees]) -> list[str]:
    """Return problems of trimming, which uses one axis for all variables."""
    if "kv" not in sees.values() or "linear" in sees.values():
        return []
    _, axis = kv_axes(list(initializers.values()))
    caches = inventory.of_kind("kv")
    other = [cache.name for cache in caches if cache.axes.sequence not in {None, axis}]
    carried = [cache.name for cache in inventory.of_kind("other") if initializers.get(cache.name) is not None]
    lines = []
    if other:
        sequence = next(cache.axes.sequence for cache in caches if cache.name == other[0])
        lines.append(f"will trim {listed(other)} along axis {axis}, but positions are on axis {sequence}")
    if carried:
        lines.append(f"will trim {listed(carried)}, too, which is not a cache")
    return lines


def _ports(model: Model) -> list[str]:
    inputs = {name: port for port, names in names_of(model, model.inputs) for name in names}
    outputs = {name: port for port, names in names_of(model, model.outputs) for name in names}
    lines = []
    if inputs.keys().isdisjoint(TOKEN_INPUTS):
        lines.append("will fail because the model has no input input_ids or inputs_embeds")
    for name, kind in (("attention_mask", "i64"), ("beam_idx", "i32")):
        if name not in inputs:
            lines.append(f"will fail because the model has no input {name}")
        elif inputs[name].element_type != kind:
            lines.append(f"will fail because {name} is {inputs[name].element_type}, not {kind}")
    for port, names in names_of(model, model.inputs):
        if not names & _FED:
            lines.append(f"will fail because it never feeds the input {port.name}")
    logits = outputs.get("logits")
    if logits is None:
        lines.append("will fail because the model has no output logits")
    elif logits.element_type != "f32" or (logits.shape is not None and len(logits.shape) != 3):
        lines.append(f"will fail because logits is {logits.element_type} {shape_text(logits.shape)}, not f32 of rank 3")
    return lines
