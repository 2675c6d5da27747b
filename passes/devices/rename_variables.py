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

#: Optimum's words for roles.
_ROLES = {"key": "key", "value": "value", "conv": "conv", "recurrent": "ssm"}

_SAID = {"kv": ("key", "value"), "linear": ("conv", "recurrent")}


@dataclass(frozen=True)
class RenameVariables(Pass[OpenVINOModel]):
    """Rename variables as optimum names them: NPUW knows caches by these names.

    NPUW turns variables into inputs and outputs again and takes their names apart, for which it knows two families
    (``stateful_to_stateless.cpp``). Other exporters name caches otherwise, and ONNX Runtime GenAI's builder counts
    layers, but NPUW counts within a kind. All caches are renamed if the name of one does not show its kind.

    Before:
        past.0.convpresent.0.conv, past_key_values.1.keypresent.1.key
    After:
        cache_params.past.conv.0cache_params.present.conv.0, cache_params.past.key.0cache_params.present.key.0

    Before:
        past_key_0present_key_0
    After:
        past_key_values.0.keypresent.0.key

    Raises:
        PreconditionError: GP302 the model is not stateful.
        UnsupportedError: GP342 the role of a cache is not known, or it holds several; GP343 another variable has the
            name already.
    """

    name = "rename-variables"
    dialect = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> Done | Skipped:
        inventory = analyze_caches(model)
        if inventory.of_kind("cross"):
            return Skipped("it reads an encoder, and no runtime that goes by names feeds one")
        caches = inventory.of_kind("kv", "linear")
        if all(named_kind(cache.name) == cache.kind for cache in caches):
            return Done()
        names = _names(inventory, {*packed_caches(inventory), *flat_caches(model, inventory)})
        others = {variable.info.variable_id for variable in model.ov_model.get_variables()} - names.keys()
        if taken := sorted(others & set(names.values())):
            raise UnsupportedError(
                "GP343", f"variable {taken[0]} is not a cache, but has the name that a cache would get"
            )
        declared = model.declarations
        rename_variables(model.ov_model, names)
        # New ids hold the names of past and present themselves.
        remember_names(model, {name: split_id(model, name) for name in sorted(others)})
        model.mark_edited()
        if declared:
            model.declare(
                [replace(declaration, name=names.get(declaration.name, declaration.name)) for declaration in declared]
            )
        return Done({"variables renamed": sum(old != new for old, new in names.items())})


def _names(inventory: Inventory, packed: AbstractSet[Cache]) -> dict[str, str]:
    caches = inventory.of_kind("kv", "linear")
    # A latent that is read as key and as value takes the role that its layer lacks.
    roles = {cache.name: role for layer in roles_by_layer(inventory) for role, cache in layer.items()}
    is_dense = all(cache.kind == "kv" for cache in caches)
    counted: Counter[str] = Counter()
    names = {}
    for cache in caches:
        if cache in packed:
            raise UnsupportedError(
                "GP342",
                f"cache {cache.name} holds several in one tensor, which these names do not cover",
                "run unpack before it",
            )
        role = roles.get(cache.name, cache.role)
        if role not in _ROLES:
            known = " or ".join(_SAID[cache.kind])
            raise UnsupportedError(
                "GP342",
                f"the role of cache {cache.name} is {role}, which these names do not cover",
                f"declare it with --cache {cache.name}={cache.kind},role={known}"
                if role == "unknown"
                else "NPUW knows keys, values, windows and recurrent states alone",
            )
        word = _ROLES[role]
        number = counted[word]
        counted[word] += 1
        if is_dense:
            names[cache.name] = f"past_key_values.{number}.{word}present.{number}.{word}"
        else:
            names[cache.name] = f"cache_params.past.{word}.{number}cache_params.present.{word}.{number}"
    return names
