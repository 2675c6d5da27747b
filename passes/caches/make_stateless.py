"""The pass `make-stateless`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import beam_gather, drop_unread_input, named
from graphpass.dialects.openvino.variables import conversions, forget_names, split_id
from graphpass.engine.conditions import STATEFUL, STATELESS
from graphpass.engine.passes import Changed, Pass, PassResult
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

__all__ = ["MakeStateless"]


@dataclass(frozen=True)
class MakeStateless(Pass[OpenVINOModel]):
    """Turn the variables of a model into past inputs and present outputs: the inverse of make-stateful.

    Names come back from the variable's id. The reorder by ``beam_idx`` goes, and with it the input, since who holds the
    caches reorders them. New inputs and outputs follow the others, by layer, key before value.

    Before:
        ReadValue(initial) -> Gather(., beam_idx, 0) -> Concat(., new) -> Assign
    After:
        past_key_values.0.key (Parameter) -> Concat(., new) -> present.0.key (Result)

    Raises:
        PreconditionError: GP302 the model is not stateful.
        UnsupportedError: GP315 a variable is no cache that is carried: it is computed once and only read.
    """

    name: ClassVar[str] = "make-stateless"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (STATEFUL,)
    ensures = (STATELESS,)

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        native = model.ov_model
        inventory = analyze_caches(model)
        for cache in inventory.caches:
            if cache.kind not in {"kv", "linear", "other"} or cache.role == "adapter":
                raise UnsupportedError(
                    "GP315", f"variable {cache.name} is no cache that is carried: {'; '.join(cache.evidence)}"
                )
        reads = {
            node.get_attributes()["variable_id"]: node
            for node in native.get_ops()
            if node.get_type_name() == "ReadValue"
        }
        writes = {
            node.get_attributes()["variable_id"]: node
            for node in native.get_sinks()
            if node.get_type_name() == "Assign"
        }
        said = model.declarations
        pasts = {
            cache.name: _make_ports(native, cache.name, reads[cache.name], writes[cache.name])
            for cache in inventory.caches
        }
        drop_unread_input(native, "beam_idx")
        forget_names(native)
        if said:
            model.declare([replace(one, name=pasts[one.name]) for one in said])
        native.validate_nodes_and_infer_types()
        return Changed(model, {"variables removed": len(inventory.caches)})


def _make_ports(native: openvino.Model, variable_id: str, read: openvino.Node, write: openvino.Node) -> str:
    """Make an input and an output of a variable; gives the input's name."""
    from openvino import opset13

    past_name, present_name = split_id(native, variable_id)
    past = named(opset13.parameter(read.get_output_partial_shape(0), read.get_output_element_type(0)), past_name)
    past.output(0).set_names({past_name})
    converts = conversions(read.output(0))
    if gather := beam_gather(read) or (beam_gather(converts[0]) if converts else None):
        for reader in gather.output(0).get_target_inputs():
            reader.replace_source_output(gather.input_value(0))
    for reader in read.output(0).get_target_inputs():
        reader.replace_source_output(past.output(0))
    present = named(opset13.result(write.input_value(0)), present_name)
    present.output(0).add_names({present_name})
    variable = native.get_variable_by_id(variable_id)
    native.remove_sink(write)
    native.remove_variable(variable)
    native.add_parameters([past])
    native.add_results([present])
    return past_name
