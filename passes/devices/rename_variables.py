"""The pass `rename-variables`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.packed import flat_caches
from graphpass.analysis.caches.parts import packed_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.variables import remember_names, split_id
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect
from graphpass.targets.npu.names import named_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import openvino

    from graphpass.ir.cache import Cache

__all__ = ["RenameVariables"]

#: What optimum calls a cache, by its role.
_ROLES = {"key": "key", "value": "value", "conv": "conv", "recurrent": "ssm"}

_SAID = {"kv": ("key", "value"), "linear": ("conv", "recurrent")}


@dataclass(frozen=True)
class RenameVariables(Pass[OpenVINOModel]):
    """Give variables the names that optimum gives them, by which NPUW knows caches.

    NPUW turns variables into inputs and outputs again and takes their names apart, for which it knows two families
    (``stateful_to_stateless.cpp``). Other exporters name caches otherwise, and ONNX Runtime GenAI's builder counts
    layers where NPUW counts within a kind. All caches are renamed where the name of one does not say what it is.

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
        UnsupportedError: GP342 it is not known what attention or a linear layer uses a cache for, or it holds several;
            GP343 another variable has the name already.
    """

    name: ClassVar[str] = "rename-variables"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        inventory = analyze_caches(model)
        if inventory.of_kind("cross"):
            return Skipped("it reads an encoder, and no runtime that goes by names feeds one")
        caches = inventory.of_kind("kv", "linear")
        if all(named_kind(cache.name) == cache.kind for cache in caches):
            return Unchanged()
        packed = dict.fromkeys(packed_caches(inventory), "unpack-kv")
        packed |= dict.fromkeys(flat_caches(model, inventory), "unpack-linear")
        names = _names(caches, packed)
        others = {variable.info.variable_id for variable in model.ov_model.get_variables()} - names.keys()
        if taken := sorted(others & set(names.values())):
            raise UnsupportedError("GP343", f"variable {taken[0]} is no cache, but has the name that a cache would get")
        said = model.declarations
        for variable in model.ov_model.get_variables():
            _rename(variable, names)
        # The new names say themselves what they are made of.
        remember_names(model.ov_model, {name: split_id(model.ov_model, name) for name in sorted(others)})
        if said:
            model.declare([replace(one, name=names.get(one.name, one.name)) for one in said])
        return Changed(model, {"variables renamed": sum(old != new for old, new in names.items())})


def _names(caches: tuple[Cache, ...], packed: Mapping[Cache, str]) -> dict[str, str]:
    """The new name of each cache; ``packed`` are those that hold several, and what takes them apart."""
    is_dense = all(cache.kind == "kv" for cache in caches)
    counted: Counter[str] = Counter()
    names = {}
    for cache in caches:
        if cache in packed:
            raise UnsupportedError(
                "GP342",
                f"cache {cache.name} holds several in one tensor, for which there is no name",
                f"run {packed[cache]} before it",
            )
        if cache.role not in _ROLES:
            raise UnsupportedError(
                "GP342",
                f"the role of cache {cache.name} is {cache.role}, for which there is no name",
                f"say what it is with --cache {cache.name}={cache.kind},role={' or '.join(_SAID[cache.kind])}",
            )
        role = _ROLES[cache.role]
        number = counted[role]
        counted[role] += 1
        if is_dense:
            names[cache.name] = f"past_key_values.{number}.{role}present.{number}.{role}"
        else:
            names[cache.name] = f"cache_params.past.{role}.{number}cache_params.present.{role}.{number}"
    return names


def _rename(variable: openvino.op.util.Variable, names: dict[str, str]) -> None:
    from openvino.op.util import VariableInfo

    old = variable.info
    info = VariableInfo()
    info.data_shape, info.data_type = old.data_shape, old.data_type
    info.variable_id = names.get(old.variable_id, old.variable_id)
    variable.update(info)
