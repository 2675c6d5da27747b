"""View caches as ONNX Runtime's OpenVINO execution provider with ``enable_causallm``.

Sources, of intel/onnxruntime at cc8e901e: ``PatchStatefulDecoder`` and ``FuseCacheReorder`` in
``onnxruntime/core/providers/openvino/ov_stateful_patch_utils.cc``; the axis of ``kvcache_rewind`` in
``ov_interface.cc`` beside it.
"""

from __future__ import annotations

import re

from graphpass.engine.view import View, judged, listed, not_onnx
from graphpass.ir.cache import Inventory
from graphpass.ir.inputs import NEW_SLOTS, SOURCE_SLOTS
from graphpass.ir.model import Model
from graphpass.targets.consumers.pairing import paired_by_order

CONSUMER = "ONNX Runtime OpenVINO EP"

_UNDERSCORES = re.compile(r"present_(.+)_\d+")
_DOTS = re.compile(r"present\.\d+\.(key|value)")
_FALLBACK = ("key_values", "keys", "values")

#: The axis along which it drops positions.
_AXIS = 2


def view(model: Model, inventory: Inventory) -> View:
    """Return the caches of ``model`` as the execution provider sees them to make it stateful."""
    if (other := not_onnx(CONSUMER, model, inventory)) is not None:
        return other
    outputs = [port.name for port in model.outputs]
    patterns = {match[1] for name in outputs if (match := _UNDERSCORES.fullmatch(name))}
    presents = [name for name in outputs if _UNDERSCORES.fullmatch(name) or _DOTS.fullmatch(name)]
    pasts = [port.name for port in model.inputs if _is_past(port.name, patterns)]
    refusal = _refusal(model, patterns, pasts, presents)
    if refusal is not None:
        return judged(CONSUMER, inventory, {}, [f"will fail because {refusal}"])
    pairing = paired_by_order(inventory, pasts, presents, dict.fromkeys(pasts, "kv"))
    problems = pairing.problems
    if pairing.overlooked:
        cause = "because of its name, so that kvcache_rewind does not reach it"
        problems.append(f"will leave {listed(pairing.overlooked)} an ordinary input {cause}")
    problems += _layout(inventory)
    remarks = []
    if not patterns:
        remarks.append("knows names like present.0.key in releases after 1.24.1 only")
    return judged(CONSUMER, inventory, pairing.sees, problems, remarks=remarks)


def _is_past(name: str, patterns: set[str]) -> bool:
    if not patterns:
        return any(word in name for word in _FALLBACK)
    return any(
        re.fullmatch(r"_\d+", name[place + len(pattern) :])
        for pattern in patterns
        if (place := name.find(pattern)) >= 0
    )


def _refusal(model: Model, patterns: set[str], pasts: list[str], presents: list[str]) -> str | None:
    taken = {port.name for port in model.inputs} & {"beam_idx", SOURCE_SLOTS, NEW_SLOTS}
    if len(patterns) > 2:
        return f"outputs are called in more than two ways: {', '.join(sorted(patterns))}"
    if not presents:
        return "no output is called like present.0.key or present_key_0"
    if not pasts:
        return "no input is called like the presents, or holds key_values"
    if len(pasts) != len(presents):
        return f"it finds {len(pasts)} pasts and {len(presents)} presents by name"
    if taken:
        return f"the model has the input {min(taken)}, which it would add, already"
    return None


def _layout(inventory: Inventory) -> list[str]:
    kv = inventory.of_kind("kv")
    other = [cache.name for cache in kv if cache.axes.sequence not in {None, _AXIS}]
    lines = []
    if other:
        lines.append(f"will trim {listed(other)} along axis {_AXIS}, where positions are not")
    sizes = {tuple(size for size in cache.shape[1:] if isinstance(size, int)) for cache in kv if cache.shape}
    if len(sizes) > 1:
        lines.append("will fail on GPU because one dst_idx of the first past's shape is to fit all, and shapes differ")
    return lines
