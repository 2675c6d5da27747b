"""The pass `unpack-linear`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches import analyze_caches
from graphpass.analysis.flat import Flat, flat_caches
from graphpass.editor import Editor, Handle, editor_of
from graphpass.manager import Changed, Pass, PassResult, Skipped
from graphpass.packing import carriers, finish, input_of, names_of_states, resized_start

if TYPE_CHECKING:
    from graphpass.graph import Graph, Node
    from graphpass.model import Model

__all__ = ["UnpackLinear"]


@dataclass(frozen=True)
class UnpackLinear(Pass["Model"]):
    """Carry the states of a layer in tensors of their own where one flat tensor holds them: the inverse of pack-linear.

    The graph says how the tensor is taken apart: by a Split, or Slices that leave nothing out, each part reshaped to
    its state; and a Concat of the new states, flattened, is written back. ``past.conv+ssm.0`` becomes ``past.conv.0``
    and ``past.ssm.0``; other names get a number behind them.

    Shapes:
        ``[batch, 1, size]`` to ``[batch, ...]`` for each state, as it is reshaped.

    Before:
        conv+recurrent -> VariadicSplit -> Reshape -> convolution, Reshape -> update
    After:
        conv -> convolution, recurrent -> update
    """

    name: ClassVar[str] = "unpack-linear"

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        graph = model.graph
        reads, writes = carriers(graph)
        packed = flat_caches(model, analyze_caches(model))
        if not packed:
            return Skipped("no flat tensor holds several states")
        editor = editor_of(model)
        for cache, flat in packed.items():
            names = names_of_states(model, cache, len(flat.states))
            _unpack(graph, editor, reads[cache.read], writes[str(cache.write)], flat, names)
        finish(model, editor, {cache.name: () for cache in packed})
        made = sum(len(flat.states) for flat in packed.values())
        return Changed(model, {"caches unpacked": len(packed), "caches made": made})


def _unpack(graph: Graph, editor: Editor, read: Node, write: Node, flat: Flat, names: list[tuple[str, str]]) -> None:
    for place, (state, (past, present)) in enumerate(zip(flat.states, names, strict=True)):
        shape = (None, *state.sizes)
        own = editor.add_past(read, past, shape, _start(graph, editor, read, flat, place, f"{past}/initial"))
        if flat.gather is not None:
            own = editor.again(flat.gather, {0: own}, f"{past}/by_beam")
        for value in state.pasts:
            for use in graph.uses(value):
                editor.redirect(use.node, use.port, own)
        new = input_of(graph.producer(state.flattened))
        kept = new.shape is not None and new.shape[1:] == state.sizes
        handle = editor.handle(new if kept else state.flattened)
        if not kept:
            handle = editor.reshape(handle, (0, *state.sizes), f"{present}/state")
        editor.add_present(write, present, shape, handle)
    editor.drop([write, read])


def _start(graph: Graph, editor: Editor, read: Node, flat: Flat, place: int, name: str) -> Handle | None:
    if not read.inputs:
        return None
    sizes = flat.states[place].sizes
    made = resized_start(graph, editor, input_of(read), (None, *sizes), name)
    if made is not None:
        return made
    parts = editor.split(
        editor.handle(input_of(read)), flat.axis, [state.size for state in flat.states], f"{name}/parts"
    )
    return editor.reshape(parts[place], (0, *sizes), name)
