"""The pass `keep-cross-caches`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.ports import port_name
from graphpass.dialects.openvino.rewrite import named
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

__all__ = ["KeepCrossCaches"]

_KEY, _VALUE = 1, 2


@dataclass(frozen=True)
class KeepCrossCaches(Pass[OpenVINOModel]):
    """Keep the keys and values of cross attention in variables, computed once from what the encoder gives.

    A variable's initializer runs at the first step after a reset, and what it gave stands until the next one.

    Before:
        encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> ScaledDotProductAttention
    After:
        encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> ReadValue -> ScaledDotProductAttention;
        ReadValue -> Assign

    Raises:
        PreconditionError: GP302, the model is not stateful: it would be run without a reset between two sequences.
    """

    name: ClassVar[str] = "keep-cross-caches"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        kept: dict[str, openvino.Node] = {}
        for op in model.ov_model.get_ordered_ops():
            if op.get_type_name() != "ScaledDotProductAttention":
                continue
            for place in (_KEY, _VALUE):
                value = op.input_value(place)
                if not _is_given_by_the_encoder(value):
                    continue
                known = f"{value.get_node().get_name()}.{value.get_index()}"
                if known not in kept:
                    kept[known] = _variable(model.ov_model, value)
                op.input(place).replace_source_output(kept[known].output(0))
        if not kept:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"cross caches": len(kept)})


def _is_given_by_the_encoder(value: openvino.Output) -> bool:
    """Whether it is computed from an encoder's hidden states, and of all else from sizes alone."""
    inputs: set[str] = set()
    pending, seen = [value.get_node()], set()
    while pending:
        node = pending.pop()
        if node.get_name() in seen or node.get_type_name() == "ShapeOf":
            continue
        seen.add(node.get_name())
        if node.get_type_name() == "ReadValue":
            return False
        if node.get_type_name() == "Parameter":
            inputs.add(port_name(node.output(0)))
        pending += [source.get_node() for source in node.input_values()]
    return inputs == {"encoder_hidden_states"}


def _variable(native: openvino.Model, value: openvino.Output) -> openvino.Node:
    from openvino import opset6
    from openvino.op.util import Variable, VariableInfo

    name = value.get_node().get_friendly_name()
    info = VariableInfo()
    info.data_shape, info.data_type = value.get_partial_shape(), value.get_element_type()
    info.variable_id = name
    variable = Variable(info)
    read: openvino.Node = named(opset6.read_value(value, variable), f"{name}/read")
    native.add_variables([variable])
    native.add_sinks([named(opset6.assign(read, variable), f"{name}/write")])
    return read
