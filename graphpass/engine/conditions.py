"""Conditions that passes require before they run, or ensure afterwards."""

from __future__ import annotations

from collections.abc import Callable

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.pairs import is_stateful
from graphpass.engine.passes import Condition
from graphpass.ir.bodies import inlined
from graphpass.ir.model import Model
from graphpass.ir.types import FORMATS, Dialect


def _needs_stateless(model: Model) -> str | None:
    return "the model is stateful already" if is_stateful(inlined(model)) else None


def _needs_stateful(model: Model) -> str | None:
    reads, outside = (list(view.graph.of_op("ReadValue")) for view in (inlined(model), model))
    if not reads:
        return "the model has no variables"
    inside = {node.attributes["variable"] for node in reads} - {node.attributes["variable"] for node in outside}
    return f"variable {min(inside)} is in the body of a loop or branch" if inside else None


def _needs_caches(model: Model) -> str | None:
    inventory = analyze_caches(model)
    if inventory.caches or inventory.unpaired_inputs or inventory.unpaired_outputs:
        return None
    return "the model has no caches"


def _needs_dialect(dialect: Dialect) -> Callable[[Model], str | None]:
    return lambda model: None if model.dialect == dialect else f"the model is {FORMATS[model.dialect]}"


def _needs_axes_as_inputs(model: Model) -> str | None:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.operators import FIRST_OPSET
    from graphpass.dialects.onnx.walk import opset_of

    is_new = isinstance(model, OnnxModel) and opset_of(model.proto) >= FIRST_OPSET
    return None if is_new else f"the model is of an opset before {FIRST_OPSET}"


STATELESS = Condition("stateless", _needs_stateless, "run make-stateless first")
STATEFUL = Condition("stateful", _needs_stateful, "run make-stateful first")
HAS_CACHES = Condition(
    "has caches", _needs_caches, "export the model with past_key_values (optimum: a task that ends in -with-past)"
)
ONNX = Condition(
    FORMATS["onnx"], _needs_dialect("onnx"), "name the exported ONNX model: no pass converts OpenVINO IR to ONNX"
)
OPSET_13 = Condition("opset 13 or later", _needs_axes_as_inputs, "run upgrade-opset first")
OPENVINO = Condition(FORMATS["openvino"], _needs_dialect("openvino"), "run to-openvino first")
