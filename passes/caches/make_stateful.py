"""The pass `make-stateful`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.pairs import find_pairs
from graphpass.analysis.caches.updates import find_updates
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.ports import port_name
from graphpass.dialects.openvino.rewrite import (
    add_input,
    find_input,
    find_output,
    fold,
    has_input,
    integers,
    named,
    redirect,
    scalar,
)
from graphpass.dialects.openvino.variables import conversions, remember_names
from graphpass.engine.conditions import HAS_CACHES, STATEFUL, STATELESS
from graphpass.engine.passes import Changed, Pass, PassResult
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

__all__ = ["MakeStateful"]


@dataclass(frozen=True)
class MakeStateful(Pass[OpenVINOModel]):
    """Turn the caches of a model from inputs and outputs into variables, so that they stay on the device.

    Each pair of past input and present output becomes a variable whose id is the past name and the present name
    concatenated, as OpenVINO's MakeStateful has it and every consumer parses it (StatefulToStateless, NPUW, optimum). A
    variable starts as zeros for the runtime's batch and of length 0 along the sequence axis: without an initializer the
    CPU plugin does not compile and openvino.genai sees no cache. Cross-attention caches that are only read stay inputs.

    Options:
        beam_index: Add the input ``beam_idx`` (i32 [batch]) and reorder every cache by it along its batch axis:
            openvino.genai sets it, and the CPU plugin's fusion needs the Gather.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order; linear ``[batch, ...]``.

    Before:
        past_key_values.0.key (Parameter) -> Concat(., new) -> present.0.key (Result)
    After:
        ReadValue(Broadcast(0, [batch, heads, 0, head_dim])) -> Gather(., beam_idx, 0) -> Concat(., new) -> Assign

    Raises:
        PreconditionError: GP302 no caches, or stateful already; GP314 a past without a present or the reverse; GP318 an
            input is called beam_idx already.
        UnsupportedError: GP313 the names of two caches concatenate to one id; GP315 a cache of unknown kind; GP316 a
            dimension that the initializer needs is not known; GP317 no input tells the batch size;
            GP326 a cache of a fixed number of positions.
    """

    name: ClassVar[str] = "make-stateful"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (HAS_CACHES, STATELESS)
    ensures = (STATEFUL,)

    beam_index: bool = True

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        inventory = analyze_caches(model)
        _check(inventory)
        native = model.ov_model
        if self.beam_index and has_input(native, "beam_idx"):
            raise PreconditionError(
                "GP318", "an input is called beam_idx already", "use make-stateful{beam-index=false}"
            )
        carried = inventory.of_kind("kv", "linear", "other")
        _check_growth(model, inventory.of_kind("kv"))
        _check_ids(carried)
        initial = _Initializers(native, carried)
        beam_index = add_input(native, "beam_idx", "i32", [_batch_size(carried)]) if self.beam_index else None
        for cache in carried:
            _ask_input_for_batch(cache, find_input(native, cache.read), initial)
            _make_variable(native, cache, initial, beam_index)
        remember_names(native, {f"{cache.read}{cache.write}": (cache.read, str(cache.write)) for cache in carried})
        _declare_variables(model, carried)
        native.validate_nodes_and_infer_types()
        statistics = {
            "variables": len(carried),
            "kv": len(inventory.of_kind("kv")),
            "linear": len(inventory.of_kind("linear")),
        }
        return Changed(model, statistics)


def _declare_variables(model: OpenVINOModel, carried: tuple[Cache, ...]) -> None:
    """What was said of the inputs holds for the variables that were made of them."""
    ids = {cache.name: f"{cache.read}{cache.write}" for cache in carried}
    if model.declarations:
        model.declare([replace(said, name=ids.get(said.name, said.name)) for said in model.declarations])


def _check(inventory: Inventory) -> None:
    lonely = [f"input {name} has no present" for name in inventory.unpaired_inputs]
    lonely += [f"output {name} has no past" for name in inventory.unpaired_outputs]
    if lonely:
        hint = (
            "a model that only fills the cache (a decoder without past) cannot be made stateful; take the one with past"
        )
        raise PreconditionError("GP314", f"the caches do not pair up: {'; '.join(lonely[:6])}", hint)
    for cache in inventory.caches:
        if cache.kind == "unknown":
            raise UnsupportedError(
                "GP315",
                f"cache {cache.name} is of unknown kind: {'; '.join(cache.evidence)}",
                f"say what it is, for example with --cache {cache.name}=kv,sequence={cache.axes.sequence or 0}",
            )


def _check_ids(carried: tuple[Cache, ...]) -> None:
    owners: dict[str, Cache] = {}
    for cache in carried:
        other = owners.setdefault(f"{cache.read}{cache.write}", cache)
        if other is not cache:
            message = f"caches {other.name} and {cache.name} would be variables of one id, {cache.read}{cache.write}"
            raise UnsupportedError("GP313", message, "rename one of the inputs or outputs")


def _check_growth(model: OpenVINOModel, caches: tuple[Cache, ...]) -> None:
    """Variables start without positions, so a cache whose number of positions is fixed cannot become one here."""
    native = model.ov_model
    pairs = {pair.past.name: pair for pair in find_pairs(model)}
    for cache in caches:
        past = find_input(native, cache.read).get_output_partial_shape(0)[cache.axes.sequence]
        present = find_output(native, str(cache.write)).input_value(0).get_partial_shape()[cache.axes.sequence]
        updates = find_updates(model.graph, pairs[cache.read]) if cache.read in pairs else ()
        in_place = bool(updates) and not any(update.appends for update in updates)
        if in_place or (past.is_static and past == present):
            size = f"{past.get_length()} positions" if past.is_static else "the positions it is given"
            raise UnsupportedError(
                "GP326",
                f"cache {cache.name} always holds {size}: written in place, or a window",
                "export the model with a cache that grows",
            )


def _make_variable(
    native: openvino.Model, cache: Cache, initial: _Initializers, beam_index: openvino.Node | None
) -> None:
    import openvino
    from openvino import opset6, opset8, opset13
    from openvino.op.util import Variable, VariableInfo

    parameter = find_input(native, cache.read)
    result = find_output(native, str(cache.write))
    shape = parameter.get_output_partial_shape(0)
    if cache.axes.sequence is not None:
        shape[cache.axes.sequence] = openvino.Dimension.dynamic()
    info = VariableInfo()
    info.data_shape = shape
    info.data_type = parameter.get_output_element_type(0)
    info.variable_id = f"{cache.read}{cache.write}"
    variable = Variable(info)
    read = named(opset6.read_value(initial.of(cache, parameter), variable), f"{cache.read}/read")
    state, readers = read, parameter.output(0).get_target_inputs()
    if converts := conversions(parameter.output(0)):
        # The CPU plugin fails on a Convert behind the Gather.
        state = named(
            opset13.convert(read, converts[0].get_output_element_type(0).to_string()), f"{cache.read}/converted"
        )
        readers = readers | {reader for node in converts for reader in node.output(0).get_target_inputs()}
    if beam_index is not None:
        axis = integers(cache.axes.batch or 0, f"{cache.read}/batch_axis")
        state = named(opset8.gather(state, beam_index, axis), f"{cache.read}/by_beam")
    for reader in readers:
        reader.replace_source_output(state.output(0))
    # The binding takes a node with a single output; what is written may be one of several outputs of its node.
    assign = named(opset6.assign(read, variable), f"{cache.write}/write")
    assign.input(0).replace_source_output(result.input_value(0))
    native.add_variables([variable])
    native.add_sinks([assign])
    native.remove_parameter(parameter)
    native.remove_result(result)


def _ask_input_for_batch(cache: Cache, past: openvino.Node, initial: _Initializers) -> None:
    """Lets what asks ``past`` for its batch, as torch.onnx writes it, ask the input of whose batch the variable is.

    Paged attention takes the variables away, and does not expect that anything but its own matchers' length hangs on
    one (``prev_sequence_length_pattern.cpp`` of openvino).
    """
    from openvino import opset13

    shapes = [node for node in _readers(past) if node.get_type_name() == "ShapeOf"]
    for pick in [pick for shape in shapes for pick in _readers(shape)]:
        if cache.axes.batch is None or _picked(pick, len(past.get_output_partial_shape(0))) != cache.axes.batch:
            continue
        name, batch = pick.get_friendly_name(), initial.batch
        if not len(pick.get_output_partial_shape(0)):
            batch = named(opset13.reshape(batch, integers((), f"{name}/number"), False), f"{name}/batch")
        if pick.get_output_element_type(0) != batch.get_output_element_type(0):
            batch = named(opset13.convert(batch, pick.get_output_element_type(0).to_string()), f"{name}/typed")
        redirect(pick.output(0), batch.output(0))


def _readers(node: openvino.Node) -> list[openvino.Node]:
    return [reader.get_node() for reader in node.output(0).get_target_inputs()]


def _picked(node: openvino.Node, rank: int) -> int | None:
    """The one dimension of a shape of ``rank`` that ``node`` picks."""
    kind, bounds = node.get_type_name(), [fold(value) for value in node.input_values()[1:]]
    numbers = [int(bound.item()) for bound in bounds if bound is not None and bound.size == 1]
    if kind not in {"Gather", "Slice"} or len(numbers) < len(bounds):
        return None
    if kind == "Slice" and (numbers[1] - numbers[0], numbers[2]) != (1, 1):
        return None
    return numbers[0] % rank


def _batch_size(carried: tuple[Cache, ...]) -> int:
    """The batch size that the caches are fixed to; -1 where it is dynamic."""
    sizes = {
        cache.shape[cache.axes.batch] for cache in carried if cache.shape is not None and cache.axes.batch is not None
    }
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else -1


class _Initializers:
    """Builds what variables start with: zeros of the runtime's batch and of length 0."""

    def __init__(self, native: openvino.Model, carried: tuple[Cache, ...]) -> None:
        self._native = native
        self._pasts = {cache.read for cache in carried}
        self._made: openvino.Node | None = None

    @property
    def batch(self) -> openvino.Node:
        """The runtime's batch size, i64 [1]; made once it is needed."""
        from openvino import opset8

        if self._made is None:
            source = _batch_source(self._native, self._pasts)
            shape = named(opset8.shape_of(source, "i64"), "initial_state/input_shape")
            first = integers([0], "initial_state/batch_axis")
            self._made = named(opset8.gather(shape, first, integers(0, "initial_state/axis")), "initial_state/batch")
        return self._made

    def of(self, cache: Cache, parameter: openvino.Node) -> openvino.Node:
        """The initializer of ``cache``: a Broadcast of 0."""
        from openvino import opset13

        parts: list[openvino.Node] = []
        for axis, dimension in enumerate(parameter.get_output_partial_shape(0)):
            name = f"{cache.read}/initial_{axis}"
            if axis == cache.axes.sequence:
                parts.append(integers([0], name))
            elif dimension.is_static:
                parts.append(integers([dimension.get_length()], name))
            elif axis == cache.axes.batch:
                parts.append(self.batch)
            else:
                raise UnsupportedError(
                    "GP316",
                    f"dimension {axis} of cache {cache.name} is not known, so its initial state cannot be built",
                    "give the input a fixed size along this axis",
                )
        shape = named(opset13.concat(parts, 0), f"{cache.read}/initial_shape")
        zero = scalar(0.0, parameter.get_output_element_type(0), f"{cache.read}/zero")
        return named(opset13.broadcast(zero, shape), f"{cache.read}/initial")


def _batch_source(native: openvino.Model, pasts: set[str]) -> openvino.Node:
    """An input whose first dimension is the batch: token ids or embeddings by preference."""
    others = [
        port
        for port in native.inputs
        if not (port.get_names() & pasts)
        and port_name(port) not in pasts
        and len(port.get_partial_shape()) >= 2
        # The first dimension is something else where it is fixed and the batch is not: position_ids [3, batch, length].
        and port.get_partial_shape()[0].is_dynamic
    ]
    for wanted in ("input_ids", "inputs_embeds", "decoder_input_ids"):
        for port in others:
            if wanted in port.get_names():
                node: openvino.Node = port.get_node()
                return node
    if not others:
        raise UnsupportedError("GP317", "no input besides the caches has a batch dimension")
    first: openvino.Node = others[0].get_node()
    return first
