"""The pass `compute-cross-caches`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.ports import port_name
from graphpass.dialects.openvino.rewrite import find_input, find_output, has_input
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import PreconditionError
from graphpass.io import load
from graphpass.ir.types import Dialect
from graphpass.passes.convert.select_branch import SelectBranch
from graphpass.passes.convert.to_openvino import ToOpenVINO

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.cache import Cache

__all__ = ["ComputeCrossCaches"]

#: What decides in a file that holds both decoders as branches.
_SWITCH = "use_cache_branch"


@dataclass(frozen=True)
class ComputeCrossCaches(Pass[OpenVINOModel]):
    """Let a decoder compute the keys and values of its cross attention itself, from what the encoder gives.

    Exporters split a decoder in two: one for the first step, which computes these caches and returns them, and one for
    all others, which takes them as inputs. What the first one does for them is copied into the second. Its weights stay
    in their files. With an empty past the second one computes the first step, too.

    Before:
        past_key_values.0.encoder.key (Parameter) -> attention
    After:
        encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> attention

    Attributes:
        source: The file of the decoder for the first step, or of both as branches of an If.

    Raises:
        PreconditionError: GP345, the source does not return a cache, or computes it from an input that is missing here.
        ReadError: The source cannot be read.
    """

    name: ClassVar[str] = "compute-cross-caches"
    dialect: ClassVar[Dialect | None] = "openvino"

    source: str = ""

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        caches = [one for one in analyze_caches(model).of_kind("cross") if has_input(model.ov_model, one.read)]
        if not caches:
            return Unchanged()
        if not self.source:
            reason = f"cache {caches[0].read} is computed by another model, and option source does not name it"
            raise PreconditionError("GP345", reason, "compute-cross-caches{source=path/to/decoder_model.onnx}")
        source = _in_openvino(Path(self.source))
        given = {cache.name: _computed(source, cache) for cache in caches}
        copied = _Copied(model.ov_model, source)
        for cache in caches:
            parameter = find_input(model.ov_model, cache.read)
            computed = copied.take(given[cache.name])
            for reader in parameter.output(0).get_target_inputs():
                reader.replace_source_output(computed)
            computed.get_node().set_friendly_name(cache.read)
            model.ov_model.remove_parameter(parameter)
        model.ov_model.validate_nodes_and_infer_types()
        model.weight_files += source.weight_files
        return Changed(model, {"cross caches": len(caches), "operators": copied.count})


def _in_openvino(path: Path) -> OpenVINOModel:
    model = load(path)
    passes: list[Pass[Any]] = [ToOpenVINO()] if model.dialect == "onnx" else []
    if any(port.name == _SWITCH for port in model.inputs):
        passes.insert(0, SelectBranch(_SWITCH, value=False))
    model = PassManager(passes).run(model).model
    assert isinstance(model, OpenVINOModel)
    return model


def _computed(source: OpenVINOModel, cache: Cache) -> openvino.Output:
    """What ``source`` returns as the first value of ``cache``: exporters call it present instead of past_key_values."""
    wanted = cache.read.replace("past_key_values", "present")
    try:
        output: openvino.Output = find_output(source.ov_model, wanted).input_value(0)
    except KeyError:
        reason = f"{source.path} does not compute cache {cache.read}: it has no output {wanted}"
        raise PreconditionError("GP345", reason, "name the decoder model for the first step") from None
    return output


class _Copied:
    """Moves operators of one model into another.

    Attributes:
        count: How many were moved.
    """

    def __init__(self, native: openvino.Model, source: OpenVINOModel) -> None:
        self._native, self._source = native, source
        self._moved: set[str] = set()
        self.count = 0

    def take(self, output: openvino.Output) -> openvino.Output:
        """Move what computes ``output``; inputs of the same name become one.

        Raises:
            PreconditionError: GP345, it depends on an input that is missing in the other model.
        """
        pending = [output.get_node()]
        while pending:
            node = pending.pop()
            if node.get_name() in self._moved:
                continue
            self._moved.add(node.get_name())
            if node.get_type_name() == "Parameter":
                self._join(node)
                continue
            self.count += 1
            node.set_friendly_name(f"cross_caches/{node.get_friendly_name()}")
            for port in node.outputs():
                port.set_names(set())
            pending += [value.get_node() for value in node.input_values()]
        return output

    def _join(self, parameter: openvino.Node) -> None:
        name = port_name(parameter.output(0))
        if has_input(self._native, name):
            own = find_input(self._native, name)
            for reader in parameter.output(0).get_target_inputs():
                reader.replace_source_output(own.output(0))
        elif len(parameter.get_output_partial_shape(0)) == 3 and parameter.get_output_element_type(0).is_real():
            self._native.add_parameters([parameter])
        else:
            reason = f"{self._source.path} computes caches from input {name}, which the other decoder does not have"
            raise PreconditionError("GP345", reason, "name the two decoders of one export")
