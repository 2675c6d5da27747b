"""Variable ids: joined names of past and present."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from graphpass.errors import ReadError
from graphpass.storage.documents import read_json

if TYPE_CHECKING:
    import openvino

    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.model import Model


#: Metadata key of the names: a JSON object, variable id -> [past, present].
_NOTE = "variables"

#: Forms of ids that OpenVINO's StatefulToStateless splits (stateful_to_stateless.cpp).
_FAMILIES = (
    re.compile(r"(past_key_values\..+?)(present\..+)"),
    re.compile(r"(cache_params\.past\..+?)(cache_params\.present\..+)"),
)


#: Forms of ids that NPUW splits, from the 2026.4.1 libraries.
_DENSE = re.compile(r"past_key_values\.\d+\.(key|value)present\.\d+\.(key|value)")
_HYBRID = re.compile(r"cache_params\.past\.(key|value|conv|ssm)\.\d+cache_params\.present\.(key|value|conv|ssm)\.\d+")


def is_hybrid(variable_id: str) -> bool:
    """Return whether ``variable_id`` has the form ``cache_params``."""
    return _HYBRID.fullmatch(variable_id) is not None


def named_kind(variable_id: str) -> Literal["kv", "linear", "nothing"]:
    """Return the kind of cache that NPUW derives from the name of a variable."""
    if _DENSE.fullmatch(variable_id):
        return "kv"
    match = _HYBRID.fullmatch(variable_id)
    if match is None:
        return "nothing"
    return "kv" if match[1] in {"key", "value"} else "linear"


def remember_names(model: Model, names: Mapping[str, tuple[str, str]]) -> None:
    """Record the names of past and present of variables; replace earlier records.

    Args:
        model: The model, whose metadata is edited.
        names: Past and present by variable id.
    """
    model.write_note(_NOTE, json.dumps(names, separators=(",", ":")))


def add_names(model: Model, names: Mapping[str, tuple[str, str]], like: str) -> None:
    """Record ``names`` if the names of variable ``like`` are recorded; otherwise ids imply them.

    Args:
        model: The model, whose metadata is edited.
        names: Past and present by id of the new variables.
        like: Id of an existing variable.

    Raises:
        ReadError: GP109, the recorded names are invalid.
    """
    known = _known_names(model)
    if like in known:
        remember_names(model, known | dict(names))


def forget_names(model: OpenVINOModel) -> None:
    """Remove the record of `remember_names`."""
    model.drop_note(_NOTE)


def split_id(model: Model, variable_id: str) -> tuple[str, str]:
    """Return the names of past and present for ``variable_id``.

    The first available form is used: recorded names (`remember_names`), names of known forms, then
    ``input_restored.<id>`` and ``output_restored.<id>`` as in OpenVINO's StatefulToStateless.

    Args:
        model: The model, whose metadata may record names.
        variable_id: Id of one of its variables.

    Raises:
        ReadError: GP109, the recorded names are invalid.
    """
    if variable_id in (known := _known_names(model)):
        return known[variable_id]
    for family in _FAMILIES:
        if match := family.fullmatch(variable_id):
            return match[1], match[2]
    return f"input_restored.{variable_id}", f"output_restored.{variable_id}"


def rename_variables(native: openvino.Model, names: Mapping[str, str]) -> None:
    """Rename variables.

    Args:
        native: The model, which is edited.
        names: New ids by old id; other variables keep their ids.
    """
    from openvino.op.util import VariableInfo

    for variable in native.get_variables():
        old, info = variable.info, VariableInfo()
        info.data_shape, info.data_type = old.data_shape, old.data_type
        info.variable_id = names.get(old.variable_id, old.variable_id)
        variable.update(info)


def _known_names(model: Model) -> dict[str, tuple[str, str]]:
    noted = model.read_note(_NOTE)
    if noted is None:
        return {}
    try:
        return {str(name): (str(past), str(present)) for name, (past, present) in read_json(noted).items()}
    except (ValueError, AttributeError, TypeError) as error:
        reason = f"the model's metadata graphpass.{_NOTE} is invalid: {error}"
        raise ReadError("GP109", reason, "remove it, or export again") from error
