"""The pass `insert-snapshot`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewriter import OpenVINORewriter
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Node
from graphpass.ir.rewriter import Handle

_INPUT = "steps_back"

#: Follows the name of a linear cache in that of the variable that holds its earlier states.
_HISTORY = ".history"


@dataclass(frozen=True)
class InsertSnapshot(Pass[OpenVINOModel]):
    """Keep the last states of linear caches, so that a step can undo others.

    A linear cache (a convolution's window, a recurrent state) cannot be cut: what all tokens left is one tensor. With
    this pass each has a second variable, ``<variable>.history``, that holds the states with which the last ``slots``
    steps started, the newest first. The input ``steps_back`` i32 ``[1]`` is the number of steps to take back before
    this one: 0 goes on from the end of the last step and changes nothing, 1 undoes the last step, up to ``slots``.
    States that were taken back are forgotten, those before them stay: after ``n`` steps taken back, ``slots - n`` more
    can be until further steps are made. No more can be taken back than were made since the reset; beyond that, and
    beyond ``slots``, the result is of no use. Resetting the request resets both variables.

    All tokens that are fed together are one step, a prompt of any length, too. KV caches are not touched: in a hybrid
    the caller goes back in those by ``attention_mask`` and ``position_ids`` as before (or by `insert-reorder`), by as
    many positions as the steps had tokens. Beams reorder the history along with the state.

    A step copies ``slots`` states of each cache. The inventory calls a history ``other``.

    Options:
        slots: Number of steps that can be taken back.

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

    name = "insert-snapshot"
    dialect = "openvino"
    requires = (STATEFUL,)

    slots: int = 8

    def __post_init__(self) -> None:
        """Check the number of slots."""
        if self.slots < 1:
            raise ValueError(f"slots is at least 1, not {self.slots}")

    def run(self, model: OpenVINOModel) -> Done | Skipped:
        inventory, graph = analyze_caches(model), model.graph
        caches = inventory.of_kind("linear")
        if not caches:
            return Skipped(f"no linear cache: the model is of kind {inventory.kind}; cut its positions instead")
        if _INPUT in graph.parameters:
            raise PreconditionError("GP368", f"the model already has an input {_INPUT}")
        for cache in caches:
            _check(cache, graph.reads[cache.read])
        rewriter = model.rewriter()
        write = rewriter.under(_INPUT)
        start = rewriter.input(_INPUT, "i32", [1])
        steps = write.op(
            "Add", write.op("Convert", start, to="i64", label="steps"), list(range(self.slots)), label="moved"
        )
        kept = write.op("Minimum", steps, [self.slots], label="kept")
        for cache in caches:
            _keep(rewriter, cache, graph.reads[cache.read], start, kept, self.slots)
        rewriter.finish()
        return Done({"caches with a history": len(caches), "steps that can be taken back": self.slots})


def _check(cache: Cache, read: Node) -> None:
    reason = None
    if not read.inputs:
        reason = "it has no initial value, from which that of its history could be made"
    elif read.outputs[0].rank is None or cache.axes.batch is None:
        reason = "its axes are not known"
    if reason is not None:
        raise UnsupportedError("GP368", f"cache {cache.name} cannot have a history: {reason}")


def _keep(rewriter: OpenVINORewriter, cache: Cache, read: Node, start: Handle, kept: Handle, slots: int) -> None:
    """Start a cache from one of its last states; keep those that ``kept`` names."""
    write, state = rewriter.under(f"{read.name}/history"), read.outputs[0]
    shape = write.op("Concat", [slots], write.op("ShapeOf", read.source(), label="shape"), axis=0, label="sizes")
    initial = write.op("Broadcast", read.source(), shape, label="initial")
    variable = f"{cache.name}{_HISTORY}"
    sizes = [slots, *(size if isinstance(size, int) else -1 for size in state.shape or ())]
    history = rewriter.add_variable(variable, state.element_type, sizes, initial, f"{read.name}/history")
    newest = write.op("Unsqueeze", state, axes=[0], label="newest")
    states = write.op("Concat", newest, history, axis=0, label="all")
    chosen = write.op("Squeeze", write.op("Gather", states, start, axis=0, label="chosen"), axes=[0], label="start")
    after = write.op("Gather", states, kept, axis=0, label="kept")
    beams = rewriter.graph.parameters.get("beam_idx")
    if beams is not None:
        after = write.op("Gather", after, beams, axis=(cache.axes.batch or 0) + 1, label="beams")
    rewriter.redirect_uses(state, chosen)
    rewriter.add_assign(variable, after, f"{read.name}/history/write")
