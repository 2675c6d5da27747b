"""The pass `window-from-positions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.masks.window import WindowMask
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import KEEPS_ORDER
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.passes.masks.window_mask import window_masks, write_mask


@dataclass(frozen=True)
class WindowFromPositions(Pass[OpenVINOModel]):
    """Count positions of tokens in sliding windows, not places in the cache.

    A cache may hold positions that no longer count: rejected drafts, masked out with ``attention_mask`` instead of
    being dropped, or the branches of a draft tree side by side. Exported masks compare places in the cache, so that
    such positions use up a part of the window. After this pass a key of the past stands where the running sum of
    ``attention_mask`` puts it, and a new token where ``position_ids`` does. Everything else in the mask stays, the
    causal condition between places, too.

    The mask is written in the form of `expose-window`; the CPU plugin goes on fusing what it fuses.

    Options:
        required: Fail if a window cannot be taken from positions; otherwise leave it, with a note.

    Shapes:
        attention_mask i64 ``[batch, sequence]``, position_ids i64 ``[batch, length]``; mask ``[batch, 1, length,
        sequence]``

    Before:
        Greater(place of the key, place of the query - window) -> .. -> Select -> ScaledDotProductAttention
    After:
        Greater(Concat(CumSum(attention_mask)[: past] - 1, position_ids), position_ids - window) -> .. -> Select
        -> ScaledDotProductAttention, or Add -> Softmax

    Raises:
        PreconditionError: GP361 no input position_ids; GP364 no input attention_mask ``[batch, sequence]``.
        UnsupportedError: GP364 a window that is not a comparison of positions in a mask added to scores, or that the
            cache itself keeps.
    """

    name = "window-from-positions"
    dialect = "openvino"

    required: bool = True

    def run(self, model: OpenVINOModel) -> Done:
        masks, reasons = [], []
        for found in _windows(model):
            if not isinstance(found, UnsupportedError):
                masks.append(found)
            elif self.required:
                raise found
            else:
                reasons.append(found.message)
        if not masks:
            return Done(notes=tuple(reasons))
        try:
            _check_inputs(model.graph)
        except PreconditionError as error:
            if self.required:
                raise
            return Done(notes=(*reasons, error.message))
        rewriter = model.rewriter()
        compared = _positions(rewriter)
        written: dict[WindowMask, Handle] = {}
        for name, value, mask in masks:
            if mask not in written:
                written[mask] = write_mask(rewriter, mask, f"{name}/position_window", compared)
            # All users of this mask read it for the same window.
            rewriter.redirect_uses(value, written[mask])
        rewriter.finish()
        return Done({"windows from positions": len(masks), "masks": len(written)}, tuple(reasons))


def compares_positions(graph: Graph, mask: WindowMask) -> bool:
    """Return whether ``mask`` compares positions of tokens, as this pass writes it."""
    keys, queries = _source(graph, mask.keys), _source(graph, mask.queries)
    last = keys.inputs[-1] if keys.op == "Concat" else None
    return queries.op == "Parameter" and last is not None and _source(graph, last) == queries


def _source(graph: Graph, value: Value) -> Node:
    return graph.producer(graph.look_through(value, KEEPS_ORDER))


def _windows(model: OpenVINOModel) -> Iterator[tuple[str, Value, WindowMask] | UnsupportedError]:
    """Yield each attention whose window counts places, by name, with its mask, or an error."""
    graph = model.graph
    found = {node.name: (value, mask) for node, value, mask in window_masks(model)}
    for block in analyze_caches(model).attention:
        if block.window is None and block.window_in is None:
            continue
        if block.node not in found or block.window_in == "state":
            reason = "the cache keeps no more than the window" if block.window_in == "state" else "it is no comparison"
            yield UnsupportedError(
                "GP364", f"the window of attention {block.node} cannot be taken from positions: {reason}"
            )
            continue
        value, mask = found[block.node]
        if not compares_positions(graph, mask):
            yield block.node, value, mask


def _check_inputs(graph: Graph) -> None:
    if "position_ids" not in graph.parameters:
        raise PreconditionError(
            "GP361", "the model has no input position_ids that tells positions", "run expose-position-ids before it"
        )
    if graph.parameters["position_ids"].rank != 2:
        # Tokens of an image share positions, and windows count tokens.
        raise PreconditionError("GP361", "input position_ids is not [batch, length]: a token has several positions")
    mask = graph.parameters.get("attention_mask")
    if mask is None or mask.rank != 2:
        raise PreconditionError(
            "GP364", "the model has no input attention_mask [batch, sequence] from which positions could be counted"
        )


def _positions(rewriter: Rewriter) -> tuple[Handle, Handle]:
    """Make positions of keys ``[batch, 1, 1, sequence]`` and queries, ``[batch, 1, length, 1]``, i64."""
    write, inputs = rewriter.under("window"), rewriter.graph.parameters
    tokens, seen = (write.convert(inputs[name], "i64") for name in ("position_ids", "attention_mask"))
    counted = write.op("Subtract", write.op("CumSum", seen, axis=1), 1, label="counted")
    new, whole = (write.size(inputs[name], 1) for name in ("position_ids", "attention_mask"))
    past = write.slice(counted, 0, write.op("Subtract", whole, new, label="past"), axis=1, label="of_past")
    joined = write.op("Concat", past, tokens, axis=1, label="joined")
    keys = write.op("Unsqueeze", joined, axes=[1, 2], label="key_positions")
    return keys, write.op("Unsqueeze", tokens, axes=[1, 3], label="query_positions")
