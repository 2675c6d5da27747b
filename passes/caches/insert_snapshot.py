"""The pass `insert-snapshot`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import add_input, find_input, has_input, integers, named
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.types import Dialect
from graphpass.passes.caches.slots import reads_of

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.cache import Cache

__all__ = ["InsertSnapshot"]

_INPUT = "steps_back"

#: Behind the name of a linear cache: the variable that holds its earlier states.
_HISTORY = ".history"


@dataclass(frozen=True)
class InsertSnapshot(Pass[OpenVINOModel]):
    """Keep the last states of linear caches inside the model, so that a step can start from an earlier one.

    A linear cache (a convolution's window, a recurrent state) cannot be cut: what all tokens left is one tensor. With
    this pass each has a second variable, ``<variable>.history``, that holds the states with which the last ``slots``
    steps started, the newest first. The input ``steps_back`` i32 ``[1]`` says how many steps to take back before this
    one: 0 goes on from where the last step ended and changes nothing, 1 undoes the last step, up to ``slots``. States
    that were taken back are forgotten, those before them stay: after ``n`` steps taken back, ``slots - n`` more can be
    until further steps are made. No more can be taken back than were made since the reset; beyond that, and beyond
    ``slots``, the result is of no use. Resetting the request resets both variables.

    All tokens that are fed together are one step, a prompt of any length, too. KV caches are not touched: in a hybrid
    the caller goes back in those by ``attention_mask`` and ``position_ids`` as before (or by `insert-reorder`), by as
    many positions as the steps had tokens. Beams reorder the history along with the state.

    A step copies ``slots`` states of each cache. The inventory calls a history ``other``.

    Options:
        slots: How many steps can be taken back.

    Shapes:
        linear ``[batch, ...]``; its history ``[slots, batch, ...]``

    Before:
        ReadValue -> Gather(., beam_idx) -> update -> Assign
    After:
        all = Concat(Unsqueeze(ReadValue, 0), ReadValue(history)); Gather(all, steps_back) -> Gather(., beam_idx)
        -> update -> Assign; Gather(all, steps_back + [0 .. slots - 1]) -> Gather(., beam_idx) -> Assign(history)

    Raises:
        PreconditionError: GP302 the model is not stateful; GP368 it has an input steps_back already.
        UnsupportedError: GP368 a linear cache without an initial value, or of unknown rank.
    """

    name: ClassVar[str] = "insert-snapshot"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (STATEFUL,)

    slots: int = 8

    def __post_init__(self) -> None:
        """Check the number of slots."""
        if self.slots < 1:
            raise ValueError(f"slots is at least 1, not {self.slots}")

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        native = model.ov_model
        inventory = analyze_caches(model)
        caches = inventory.of_kind("linear")
        if not caches:
            return Skipped(f"no linear cache: the model is of kind {inventory.kind}; cut its positions instead")
        if has_input(native, _INPUT):
            raise PreconditionError("GP368", f"the model has an input {_INPUT} already")
        reads = reads_of(native)
        for cache in caches:
            _check(cache, reads[cache.name])
        places = _Places(native, self.slots)
        for cache in caches:
            _keep(native, cache, reads[cache.name], places)
        native.validate_nodes_and_infer_types()
        return Changed(model, {"caches with a history": len(caches), "steps that can be taken back": self.slots})


def _check(cache: Cache, read: openvino.Node) -> None:
    reason = None
    if not read.get_input_size():
        reason = "it has no initial value, from which that of its history could be made"
    elif read.get_output_partial_shape(0).rank.is_dynamic or cache.axes.batch is None:
        reason = "its axes are not known"
    if reason is not None:
        raise UnsupportedError("GP368", f"cache {cache.name} cannot have a history: {reason}")


class _Places:
    """Which of the states, the newest first, a step starts from, and which it leaves behind."""

    def __init__(self, native: openvino.Model, slots: int) -> None:
        from openvino import opset13

        self.slots = slots
        self.start = add_input(native, _INPUT, "i32", [1])
        steps = named(opset13.convert(self.start, "i64"), f"{_INPUT}/steps")
        moved = named(opset13.add(steps, integers(range(slots), f"{_INPUT}/slots")), f"{_INPUT}/moved")
        last = integers([slots], f"{_INPUT}/last")
        self.kept = named(opset13.minimum(moved, last), f"{_INPUT}/kept")
        self.beams = find_input(native, "beam_idx") if has_input(native, "beam_idx") else None


def _keep(native: openvino.Model, cache: Cache, read: openvino.Node, places: _Places) -> None:
    from openvino import opset6, opset8, opset13
    from openvino.op.util import Variable, VariableInfo

    name = f"{read.get_friendly_name()}/history"
    readers = read.output(0).get_target_inputs()
    kind, shape = read.get_output_element_type(0), read.get_output_partial_shape(0)
    info = VariableInfo()
    info.data_shape = type(shape)([places.slots, *shape])
    info.data_type, info.variable_id = kind, f"{cache.name}{_HISTORY}"
    variable = Variable(info)
    history = named(opset6.read_value(_initial(read, places.slots, name), variable), name)
    newest = named(opset13.unsqueeze(read, integers([0], f"{name}/newest_axis")), f"{name}/newest")
    states = named(opset13.concat([newest, history], 0), f"{name}/all")
    axis = integers(0, f"{name}/axis")
    chosen = named(opset8.gather(states, places.start, axis), f"{name}/chosen")
    start = named(opset13.squeeze(chosen, integers([0], f"{name}/chosen_axis")), f"{name}/start")
    kept = named(opset8.gather(states, places.kept, axis), f"{name}/kept")
    if places.beams is not None:
        batch = integers((cache.axes.batch or 0) + 1, f"{name}/batch_axis")
        kept = named(opset8.gather(kept, places.beams, batch), f"{name}/beams")
    for reader in readers:
        reader.replace_source_output(start.output(0))
    native.add_variables([variable])
    native.add_sinks([named(opset6.assign(kept, variable), f"{name}/write")])


def _initial(read: openvino.Node, slots: int, name: str) -> openvino.Node:
    """``slots`` copies of the state with which a variable starts."""
    from openvino import opset13

    state = read.input_value(0)
    sizes = [integers([slots], f"{name}/count"), named(opset13.shape_of(state, "i64"), f"{name}/initial_shape")]
    shape = named(opset13.concat(sizes, 0), f"{name}/initial_sizes")
    return named(opset13.broadcast(state, shape), f"{name}/initial")
