"""optimum-intel's view, which pairs caches by prefixes of names and by order.

Sources, of optimum-intel at e1de5bee:

| models | source | caches |
| --- | --- | --- |
| stateless | ``patch_stateful`` in ``optimum/exporters/openvino/stateful.py`` | by prefixes of names, in order |
| stateful | ``optimum/intel/openvino/modeling_decoder.py`` | all variables; linear states by substrings of ids |

optimum selects the family by ``model_type`` in ``config.json``; this module selects it by the names.
"""

from __future__ import annotations

import re

from graphpass.engine.view import Sees, View, judged, listed, names_of, without_caches
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.ir.types import Port
from graphpass.targets.consumers.pairing import paired_by_order

CONSUMER = "optimum-intel"

_HYBRID = re.compile(r"cache_params\.(past|present)\.(key|value|conv|ssm)")


def view(model: Model, inventory: Inventory) -> View:
    """Return the caches of ``model`` as optimum-intel classifies them.

    Args:
        model: The model.
        inventory: The caches of the model, which the view is compared with.
    """
    if (empty := without_caches(CONSUMER, inventory)) is not None:
        return empty
    return _stateful(inventory) if inventory.stateful else _stateless(model, inventory)


def _stateful(inventory: Inventory) -> View:
    sees: dict[str, Sees] = {}
    for cache in inventory.caches:
        sees[cache.name] = cache.kind if cache.kind in {"kv", "cross"} else _kind(cache.name) or "nothing"
    lost = [cache.name for cache in inventory.of_kind("linear") if sees[cache.name] != "linear"]
    problems = []
    if lost:
        names = "cache_params.past.conv.N or cache_params.past.ssm.N"
        problems.append(f"will not find the state {listed(lost)} because its name does not contain {names}")
    return judged(CONSUMER, inventory, sees, problems)


def _stateless(model: Model, inventory: Inventory) -> View:
    inputs, outputs = names_of(model, model.inputs), names_of(model, model.outputs)
    is_hybrid = any(_kind(name) for _, names in inputs for name in names)
    if is_hybrid:
        pasts, presents = [], []
        # Linear states and KV caches are paired separately.
        for kind in ("linear", "kv"):
            pasts += [name for name in _called(inputs, "cache_params.past.") if _kind(name) == kind]
            presents += [name for name in _called(outputs, "cache_params.present.") if _kind(name) == kind]
        kinds = {past: _kind(past) or "nothing" for past in pasts}
    else:
        pasts = _called(inputs, "key_values")
        if any("encoder_hidden_states" in names for _, names in inputs):
            # The patched model computes keys and values of the encoder itself.
            pasts = [name for name in pasts if "encoder" not in name]
        presents = _called(outputs, "present")
        kinds = dict.fromkeys(pasts, "kv")
    pairing = paired_by_order(inventory, pasts, presents, kinds)
    for cache in inventory.of_kind("cross"):
        pairing.sees.setdefault(cache.name, "cross" if cache.name not in pasts and pasts else "nothing")
    if pairing.overlooked:
        names = "cache_params.past.key|value|conv|ssm" if is_hybrid else "key_values"
        cause = f"because its name does not contain {names}, or no output remains for it"
        pairing.problems.append(f"will leave {listed(pairing.overlooked)} an ordinary input {cause}")
    return judged(CONSUMER, inventory, pairing.sees, pairing.problems)


def _kind(name: str) -> Sees | None:
    match = _HYBRID.search(name)
    if match is None:
        return None
    return "kv" if match[2] in {"key", "value"} else "linear"


def _called(ports: tuple[tuple[Port, frozenset[str]], ...], text: str) -> list[str]:
    """Return the ports with ``text`` in a name."""
    return [port.name for port, names in ports if any(text in name for name in names)]
