"""Names of variables: how the names of past and present become a variable's id, and come back from it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

__all__ = ["add_names", "conversions", "forget_names", "remember_names", "rename_variables", "split_id"]

#: Where a model's rt_info keeps the names: a JSON object, variable id -> [past, present].
_RT_INFO = ["graphpass", "variables"]

#: The naming families that OpenVINO's own StatefulToStateless takes apart (stateful_to_stateless.cpp).
_FAMILIES = (
    re.compile(r"(past_key_values\..+?)(present\..+)"),
    re.compile(r"(cache_params\.past\..+?)(cache_params\.present\..+)"),
)


def remember_names(native: openvino.Model, names: Mapping[str, tuple[str, str]]) -> None:
    """Write into ``native`` which past and present each variable id is made of."""
    native.set_rt_info(json.dumps(names, separators=(",", ":")), _RT_INFO)


def add_names(native: openvino.Model, names: Mapping[str, tuple[str, str]], like: str) -> None:
    """Write ``names``, too, where ``native`` keeps those of variable ``like``; others are read off their ids."""
    known = _known_names(native)
    if like in known:
        remember_names(native, known | dict(names))


def _known_names(native: openvino.Model) -> dict[str, tuple[str, str]]:
    if not native.has_rt_info(_RT_INFO):
        return {}
    return {
        name: (past, present) for name, (past, present) in json.loads(native.get_rt_info(_RT_INFO).astype(str)).items()
    }


def forget_names(native: openvino.Model) -> None:
    """Take what `remember_names` wrote out of ``native``."""
    if native.has_rt_info(_RT_INFO):
        del native.rt_info[_RT_INFO[0]]


def conversions(output: openvino.Output) -> list[openvino.Node]:
    """The Converts through which ``output`` is read, where whoever reads its elements converts them to one type.

    Plugins know a converted cache by a Convert directly behind the ReadValue, before beams or slots are reordered.
    """
    readers = [reader.get_node() for reader in output.get_target_inputs()]
    readers = [node for node in readers if node.get_type_name() != "ShapeOf"]
    types = {node.get_output_element_type(0) for node in readers}
    converts = all(node.get_type_name() == "Convert" for node in readers)
    return readers if converts and len(types) == 1 else []


def split_id(native: openvino.Model, variable_id: str) -> tuple[str, str]:
    """The names of past and present that ``variable_id`` was made of.

    Returns:
        What `remember_names` wrote; else what the known naming families say; else ``input_restored.<id>`` and
        ``output_restored.<id>``, as OpenVINO's StatefulToStateless calls them.
    """
    if variable_id in (known := _known_names(native)):
        return known[variable_id]
    for family in _FAMILIES:
        if match := family.fullmatch(variable_id):
            return match[1], match[2]
    return f"input_restored.{variable_id}", f"output_restored.{variable_id}"


def rename_variables(native: openvino.Model, names: Mapping[str, str]) -> None:
    """Give variables other ids: the old ones are the keys of ``names``."""
    from openvino.op.util import VariableInfo

    for variable in native.get_variables():
        old, info = variable.info, VariableInfo()
        info.data_shape, info.data_type = old.data_shape, old.data_type
        info.variable_id = names.get(old.variable_id, old.variable_id)
        variable.update(info)
