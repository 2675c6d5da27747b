"""onnxruntime-genai's view, which finds caches by templates of names with the layer's number.

``genai_config.json``, outside the model, may set other templates. For other names the view therefore lists the required
settings, and reports no error.

Sources, of onnxruntime-genai at a0c04eb1:

- ``src/config.h``: default templates
- ``src/models/kv_cache.cpp``: shape of allocated pasts
- ``src/models/recurrent_state.cpp`` and ``src/python/py/models/builders``: templates of linear states
"""

from __future__ import annotations

import re

from graphpass.engine.view import Sees, View, judged, listed, not_onnx
from graphpass.ir.cache import BHSD, Cache, Inventory
from graphpass.ir.model import Model

CONSUMER = "onnxruntime-genai"

#: Templates of past and present, by role, that are defaults or written by onnxruntime-genai's builder.
_DEFAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "key": (("past_key_values.%d.key", "present.%d.key"),),
    "value": (("past_key_values.%d.value", "present.%d.value"),),
    "conv": (
        ("past_conv.%d", "present_conv.%d"),
        ("past.%d.conv", "present.%d.conv"),
        ("past_key_values.%d.conv_state", "present.%d.conv_state"),
    ),
    "recurrent": (
        ("past.%d.recurrent", "present.%d.recurrent"),
        ("past_key_values.%d.recurrent_state", "present.%d.recurrent_state"),
    ),
}

_SETTINGS = {"cross_key": "cross_past_key_names", "cross_value": "cross_past_value_names", "unknown": "past_names"}


def view(model: Model, inventory: Inventory) -> View:
    """Return the caches of ``model`` as onnxruntime-genai classifies them.

    Args:
        model: The model; the rule is for ONNX only.
        inventory: The caches of the model, which the view is compared with.
    """
    if (other := not_onnx(CONSUMER, model, inventory)) is not None:
        return other
    sees: dict[str, Sees] = {}
    problems, doubts = [], []
    roles: dict[str, list[Cache]] = {}
    for cache in inventory.of_kind("kv", "linear", "cross"):
        roles.setdefault(cache.role, []).append(cache)
    for role, caches in roles.items():
        templates = sorted({(template_of(cache.read), template_of(cache.write or "")) for cache in caches})
        if len(templates) > 1 or "%d" not in templates[0][0]:
            names = listed(cache.name for cache in caches)
            problems.append(f"will not find {names} because no single template with the layer's number matches them")
            continue
        # The setting with the template determines the kind.
        sees |= {cache.name: cache.kind for cache in caches if cache.kind != "unknown" and cache.kind != "other"}
        if templates[0] not in _DEFAULTS.get(role, ()):
            setting = _SETTINGS.get(role, f"past_{role}_names")
            doubts.append(f'needs {setting} = "{templates[0][0]}" in genai_config.json')
    problems += _layout(inventory) + _numbers(inventory)
    return judged(CONSUMER, inventory, sees, problems, doubts=doubts)


def template_of(name: str) -> str:
    """Return ``name`` with its first number, the layer's, replaced by ``%d``."""
    return re.sub(r"\d+", "%d", name, count=1)


def _layout(inventory: Inventory) -> list[str]:
    other = [cache.name for cache in inventory.of_kind("kv") if cache.axes != BHSD]
    if not other:
        return []
    return [f"will feed {listed(other)} as [batch, heads, sequence, head_dim], which is not its layout"]


def _numbers(inventory: Inventory) -> list[str]:
    """Return the problem of a number that two layers share, because it counts caches."""
    layers: dict[int, set[int]] = {}
    names: dict[int, list[str]] = {}
    for cache in inventory.caches:
        if cache.index is not None and cache.layer is not None:
            layers.setdefault(cache.index, set()).add(cache.layer)
            names.setdefault(cache.index, []).append(cache.name)
    number = next((number for number, caches in layers.items() if len(caches) > 1), None)
    if number is None:
        return []
    both = f"{names[number][0]} and {names[number][-1]}"
    return [f"will look for caches under other names, because {both} have the same number in different layers"]
