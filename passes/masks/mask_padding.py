"""The pass `mask-padding`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.loops import LoopBody
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewriter import OpenVINORewriter
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Graph, Use, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder

_MASK = "attention_mask"

#: Operators between a cache and its update: the beam Gather, and Converts.
_TOWARDS_UPDATE = frozenset({"Convert", "Gather"})

_LOOPS = frozenset({"Loop", "TensorIterator"})


@dataclass(frozen=True)
class MaskPadding(Pass[OpenVINOModel]):
    """Exclude padding from linear caches.

    Attention excludes padding by a mask; a convolution's window and a recurrent state are updated by all inputs. NPUW
    pads each chunk of a prompt on the left, up to a fixed size (``infer_chunked_prefill`` in
    ``llm_infer_request.cpp``): padding is before the first token, and between a state and the next chunk. Some
    exporters set inputs of padding to 0, which is correct only before the first token.

    For new tokens whose ``attention_mask`` is 0, a recurrent state is not updated, and a window is moved past the
    padding, next to the tokens. Without padding, results are unchanged. Results for padding are undefined.

    Shapes:
        attention_mask ``[batch, total]``; a window ``[batch, channels, kernel]`` with new columns ``[batch, channels,
        length]``; a recurrent state ``[batch, ...]`` that a loop over the tokens carries.

    Before:
        window -> Concat(., new columns) -> convolution, Slice -> window
    After:
        window -> Concat(., new columns) -> Gather(., Select(column < padding + kernel, column - padding, column), and
        column + kernel where that is below 0) -> convolution, Slice -> window

    Before:
        Loop { state -> update -> state }
    After:
        Loop { state -> update -> Select(attention_mask of the token, ., state) -> state }
    """

    name = "mask-padding"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done | Skipped:
        graph = model.graph
        caches = analyze_caches(model).of_kind("linear")
        if not caches:
            return Done()
        ids, mask = token_input(graph), graph.parameters.get(_MASK)
        if ids is None or mask is None:
            return Skipped(f"the model lacks {_MASK} or input_ids, which identify padding")
        reads = graph.reads
        rewriter = model.rewriter()
        tokens = _Tokens(rewriter, StepBuilder(model, rewriter))
        counts = {"windows masked": 0, "states masked": 0}
        notes = []
        for cache in caches:
            entries = _entries(graph, reads[cache.read].outputs[0])
            entry = entries[0] if len(entries) == 1 and cache.axes.batch == 0 else None
            if entry is not None and _is_window(entry):
                counts["windows masked"] += _mask_window(rewriter, entry, tokens, cache.read)
            elif entry is not None and (loop := _loop(rewriter, entry)) is not None:
                counts["states masked"] += _mask_state(loop, entry.port, tokens, cache.read)
            else:
                operators = ", ".join(sorted({entry.node.op for entry in entries})) or "nothing"
                notes.append(f"padding is not excluded from {cache.name}: its users are {operators}")
        rewriter.finish()
        return Done({name: count for name, count in counts.items() if count}, tuple(notes))


def _entries(graph: Graph, state: Value) -> list[Use]:
    def leads_on(use: Use) -> bool:
        return use.node.op in _TOWARDS_UPDATE and use.port == 0

    uses = graph.forward([state], lambda use: use.node.outputs if leads_on(use) else ())
    return [use for use in uses if not leads_on(use) and use.node.op != "ShapeOf"]


class _Tokens:
    def __init__(self, rewriter: Rewriter, step: StepBuilder) -> None:
        self._write, self._step = rewriter.under(_MASK), step
        self._orders: dict[int, Handle] = {}

    @cached_property
    def are_real(self) -> Handle:
        """Return whether each token is not padding, boolean ``[batch, length]``."""
        return self._write.op("Convert", self._step.new_columns, to="boolean", label="new")

    def next_to_window(self, width: int) -> Handle:
        """Return source columns, i64 ``[batch, width + length]``, after a window of ``width`` columns."""
        if width not in self._orders:
            write = self._write
            length = write.op("Gather", write.op("ShapeOf", self.are_real), 1, axis=0, label="columns")
            column = write.op("Range", 0, write.op("Add", length, width), 1)
            hidden = write.op("Convert", write.op("LogicalNot", self.are_real), to="i64")
            padding = write.op("ReduceSum", hidden, 1, keep=True, label="padding")
            # Tokens do not read columns before the window. These are columns of padding: norms divide zeros by zero.
            shifted = write.op("Add", column, width)
            is_before = write.op("Less", column, padding)
            moved = write.op("Select", is_before, shifted, write.op("Subtract", column, padding), label="moved")
            is_moved = write.op("Less", column, write.op("Add", padding, width))
            self._orders[width] = write.op("Select", is_moved, moved, column, label=f"after_{width}")
        return self._orders[width]


def _is_window(entry: Use) -> bool:
    joined = entry.node
    if joined.op != "Concat" or len(joined.inputs) != 2 or entry.port != 0:
        return False
    return fixed_size(joined.source(), joined.attributes["axis"]) is not None


def _mask_window(rewriter: Rewriter, entry: Use, tokens: _Tokens, name: str) -> bool:
    """Move a convolution's window past the padding.

    Returns:
        Whether the graph changed.
    """
    joined = entry.node
    uses = [use for use in rewriter.graph.uses(joined.outputs[0]) if use.node.op != "ShapeOf"]
    if all(use.node.op == "Gather" and use.node.attributes["batch_dims"] == 1 for use in uses):
        return False
    axis = joined.attributes["axis"]
    order = tokens.next_to_window(fixed_size(joined.source(), axis) or 0)
    aligned = rewriter.op("Gather", joined.outputs[0], order, axis=axis, batch_dims=1, name=f"{name}/after_padding")
    for use in uses:
        rewriter.redirect(use.node, use.port, aligned)
    return True


def _loop(rewriter: OpenVINORewriter, entry: Use) -> LoopBody | None:
    """Return the loop over tokens that carries the state, if any."""
    from graphpass.dialects.openvino.loops import LoopBody

    loop = LoopBody(entry.node, rewriter.mark_changed) if entry.node.op in _LOOPS else None
    return loop if loop is not None and loop.steps_by_one and loop.carried(entry.port) is not None else None


def _mask_state(loop: LoopBody, port: int, tokens: _Tokens, name: str) -> bool:
    """Select the previous state at padding in a loop.

    Returns:
        Whether the graph changed.
    """
    carried = loop.carried(port)
    assert carried is not None
    before, result = carried
    update = loop.rewriter.graph.producer(result.source())
    if update.op == "Select" and update.source(2) == before:
        return False
    write = loop.rewriter.under(name)
    is_real = loop.slice_input(tokens.are_real, 1, f"{name}/is_real")
    shape = [-1, *[1] * ((before.rank or 1) - 1)]
    condition = write.op("Reshape", is_real, shape, zero_keeps=False, label="is_real/shaped")
    loop.rewriter.redirect(result, 0, write.op("Select", condition, result.source(), before, label="kept"))
    return loop.rewriter.finish()
