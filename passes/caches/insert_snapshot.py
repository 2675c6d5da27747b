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
from graphpass.ir.writer import Handle

_INPUT = "steps_back"

#: Suffix of the variable that stores earlier states of a linear cache.
_HISTORY = ".history"


@dataclass(frozen=True)
class InsertSnapshot(Pass[OpenVINOModel]):
    """Store the last states of linear caches, so that a step can undo earlier steps.

    A linear cache (a convolution's window, a recurrent state) cannot be cut, because one tensor summarizes all tokens.
    The pass adds a second variable for each linear cache, ``<variable>.history``: the states before the last ``slots``
    steps, the newest first. The input ``steps_back`` i32 ``[1]`` is the number of steps to undo before this step: 0
    continues from the last state, 1 undoes the last step.

    - ``steps_back`` is at most ``slots``, and at most the number of steps since the reset. With larger values the
      result is undefined.
    - Undone states are dropped, earlier states are kept: after ``n`` undone steps, ``slots - n`` more can be undone
      until further steps are executed.
    - All tokens of one execution are one step, for example a prompt of any length.
    - Resetting the request resets both variables.
    - ``beam_idx`` reorders the history together with the state.

    KV caches are unchanged: in a hybrid model the caller rewinds them by ``attention_mask`` and ``position_ids`` (or by
    `insert-reorder`), by the number of tokens of the undone steps.

    A step copies ``slots`` states of each cache. In the inventory, a history has kind ``other``.

    Options:
        slots: Number of steps that can be undone.

    Shapes:
        linear ``[batch, ...]``; its history ``[slots, batch, ...]``

    Before:
        ReadValue -> Gather(., beam_idx) -> update -> Assign
    After:
        all = Concat(Unsqueeze(ReadValue, 0), ReadValue(history)); Gather(all, steps_back) -> Gather(., beam_idx)
        -> update -> Assign; Gather(all, steps_back + [0 .. slots - 1]) -> Gather(., beam_idx) -> Assign(history)

    Raises:
        PreconditionError: GP302, the model is not stateful; GP368, it already has an input steps_back.
        UnsupportedError: GP368, a linear cache without an initial value, or of unknown rank.
    """

    name = "insert-snapshot"
    dialect = "openvino"
    requires = (STATEFUL,)

    slots: int = 8

    def __post_init__(self) -> None:
        """Check the number of slots.

        Raises:
            ValueError: The number is below 1.
        """
        if self.slots < 1:
            raise ValueError(f"slots must be at least 1, got {self.slots}")

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
        return Done({"caches with a history": len(caches), "steps that can be undone": self.slots})


def _check(cache: Cache, read: Node) -> None:
    reason = None
    if not read.inputs:
        reason = "it has no initial value, from which the history is initialized"
    elif read.outputs[0].rank is None or cache.axes.batch is None:
        reason = "its axes are unknown"
    if reason is not None:
        raise UnsupportedError("GP368", f"cache {cache.name} cannot have a history: {reason}")


def _keep(rewriter: OpenVINORewriter, cache: Cache, read: Node, start: Handle, kept: Handle, slots: int) -> None:
    """Read the state ``start`` steps back instead of the last state; write the states ``kept``."""
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
