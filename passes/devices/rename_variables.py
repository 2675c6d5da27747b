"""The pass `rename-variables`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.layers import roles_by_layer
from graphpass.analysis.caches.packed import flat_caches, packed_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.variables import named_kind, remember_names, rename_variables, split_id
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache, Inventory

#: Optimum's names of roles.
_ROLES = {"key": "key", "value": "value", "conv": "conv", "recurrent": "ssm"}

_DECLARABLE = {"kv": ("key", "value"), "linear": ("conv", "recurrent")}


@dataclass(frozen=True)
class RenameVariables(Pass[OpenVINOModel]):
    """Rename variables to optimum's names, by which NPUW finds caches.

    NPUW converts variables back to inputs and outputs, and parses their names, of which it supports two families
    (``stateful_to_stateless.cpp``). Other exporters use other names; ONNX Runtime GenAI's builder numbers caches by
    layer, NPUW by kind. If the name of a cache does not imply its kind, all caches are renamed.

    Before:
        past.0.convpresent.0.conv, past_key_values.1.keypresent.1.key
    After:
        cache_params.past.conv.0cache_params.present.conv.0, cache_params.past.key.0cache_params.present.key.0

    Before:
        past_key_0present_key_0
    After:
        past_key_values.0.keypresent.0.key

    Raises:
        PreconditionError: GP302, the model is not stateful.
        UnsupportedError: GP342, the role of a cache is unknown, or the cache is packed; GP343, a variable that is not a
            cache already has the name.
    """

    name = "rename-variables"
    dialect = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> Done | Skipped:
        inventory = analyze_caches(model)
        if inventory.of_kind("cross"):
            return Skipped("the model reads encoder states, which NPUW does not feed")
        caches = inventory.of_kind("kv", "linear")
        if all(named_kind(cache.name) == cache.kind for cache in caches):
            return Done()
        names = _names(inventory, {*packed_caches(inventory), *flat_caches(model, inventory)})
        others = {variable.info.variable_id for variable in model.ov_model.get_variables()} - names.keys()
        if existing := sorted(others & set(names.values())):
            raise UnsupportedError("GP343", f"variable {existing[0]} is not a cache, but has the new name of a cache")
        declared = model.declarations
        rename_variables(model.ov_model, names)
        # New ids contain the names of past and present.
        remember_names(model, {name: split_id(model, name) for name in sorted(others)})
        model.mark_edited()
        if declared:
            model.declare(
                [replace(declaration, name=names.get(declaration.name, declaration.name)) for declaration in declared]
            )
        return Done({"variables renamed": sum(old != new for old, new in names.items())})


def _names(inventory: Inventory, packed: AbstractSet[Cache]) -> dict[str, str]:
    caches = inventory.of_kind("kv", "linear")
    # A latent, which attention reads as key and as value, gets the role that its layer lacks.
    roles = {cache.name: role for layer in roles_by_layer(inventory) for role, cache in layer.items()}
    is_dense = all(cache.kind == "kv" for cache in caches)
    counted: Counter[str] = Counter()
    names = {}
    for cache in caches:
        if cache in packed:
            raise UnsupportedError(
                "GP342",
                f"cache {cache.name} is packed, and NPUW has no name for packed caches",
                "run unpack before rename-variables",
            )
        role = roles.get(cache.name, cache.role)
        if role not in _ROLES:
            known = " or ".join(_DECLARABLE[cache.kind])
            raise UnsupportedError(
                "GP342",
                f"the role of cache {cache.name} is {role}, for which NPUW has no name",
                f"declare it with --cache {cache.name}={cache.kind},role={known}"
                if role == "unknown"
                else "NPUW supports keys, values, convolution windows and recurrent states",
            )
        part = _ROLES[role]
        number = counted[part]
        counted[part] += 1
        if is_dense:
            names[cache.name] = f"past_key_values.{number}.{part}present.{number}.{part}"
        else:
            names[cache.name] = f"cache_params.past.{part}.{number}cache_params.present.{part}.{number}"
    return names
