"""View of ONNX Runtime's OpenVINO execution provider with ``enable_causallm``.

Sources, of intel/onnxruntime at cc8e901e, in ``onnxruntime/core/providers/openvino``:

- ``ov_stateful_patch_utils.cc``: ``PatchStatefulDecoder`` and ``FuseCacheReorder``
- ``ov_interface.cc``: the axis of ``kvcache_rewind``
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

#: The axis along which ``kvcache_rewind`` trims.
_AXIS = 2


def view(model: Model, inventory: Inventory) -> View:
    """Return the caches of ``model`` as the provider classifies them.

    Args:
        model: The model; the rule is for ONNX only.
        inventory: The caches of the model, which the view is compared with.
    """
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
        remarks.append("supports names such as present.0.key only in releases after 1.24.1")
    return judged(CONSUMER, inventory, pairing.sees, problems, remarks=remarks)


def _is_past(name: str, patterns: set[str]) -> bool:
    if not patterns:
        return any(word in name for word in _FALLBACK)
    return any(
        re.fullmatch(r"_\d+", name[start + len(pattern) :])
        for pattern in patterns
        if (start := name.find(pattern)) >= 0
    )


def _refusal(model: Model, patterns: set[str], pasts: list[str], presents: list[str]) -> str | None:
    taken = {port.name for port in model.inputs} & {"beam_idx", SOURCE_SLOTS, NEW_SLOTS}
    if len(patterns) > 2:
        return f"names of outputs have more than two patterns: {', '.join(sorted(patterns))}"
    if not presents:
        return "no output has a name such as present.0.key or present_key_0"
    if not pasts:
        return "no input has a name that matches the presents or contains key_values"
    if len(pasts) != len(presents):
        return f"it finds {len(pasts)} pasts and {len(presents)} presents by name"
    if taken:
        return f"the model already has the input {min(taken)}, which the provider adds"
    return None


def _layout(inventory: Inventory) -> list[str]:
    kv = inventory.of_kind("kv")
    other = [cache.name for cache in kv if cache.axes.sequence not in {None, _AXIS}]
    lines = []
    if other:
        lines.append(f"will trim {listed(other)} along axis {_AXIS}, but positions are on another axis")
    sizes = {tuple(size for size in cache.shape[1:] if isinstance(size, int)) for cache in kv if cache.shape}
    if len(sizes) > 1:
        lines.append("will fail on GPU because dst_idx has the first past's shape, and shapes of pasts differ")
    return lines
