"""The pass `window-from-positions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.attention.operators import operator_window
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.graph import Graph
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle
from graphpass.passes.attention.step_builder import StepBuilder
from graphpass.passes.masks.window_mask import Window, WindowWriter, find_windows, window_slots


@dataclass(frozen=True)
class WindowFromPositions(Pass[Model]):
    """Count positions of tokens in sliding windows instead of slots of the cache.

    A cache may have slots without tokens: rejected drafts that ``attention_mask`` excludes, and branches of a draft
    tree. Exported masks compare slots, and such slots occupy a part of the window. After this pass the position of a
    past key is the running sum of ``attention_mask``, and the position of a new token is its ``position_ids``. The rest
    of the mask is unchanged, including the causal condition between slots.

    The mask has the form that `expose-window` writes. The CPU plugin fuses the same attention as before the pass.

    Options:
        required: Fail if a window cannot count positions. Otherwise such windows are unchanged, with a note if a mask
            implements them.

    Shapes:
        attention_mask i64 ``[batch, sequence]``, position_ids i64 ``[batch, length]``; mask ``[batch, 1, length,
        sequence]``

    Before:
        Greater(slot of the key, slot of the query - window) -> .. -> Select -> ScaledDotProductAttention
    After:
        Greater(Concat(CumSum(attention_mask)[: past] - 1, position_ids), position_ids - window) -> .. -> Select
        -> ScaledDotProductAttention, or Add -> Softmax

    Raises:
        PreconditionError: GP361, no input position_ids; GP364, no input attention_mask ``[batch, sequence]``.
        UnsupportedError: GP364, a window that is not a comparison of positions in a mask added to scores, or whose
            cache stores only the window.
    """

    name = "window-from-positions"

    required: bool = True

    def run(self, model: Model) -> Done:
        windows, reasons = [], []
        for result in _windows(model, of_operators=self.required):
            if not isinstance(result, UnsupportedError):
                windows.append(result)
            elif self.required:
                raise result
            else:
                reasons.append(result.message)
        if not windows:
            return Done(notes=tuple(reasons))
        try:
            check_inputs(model.graph)
        except PreconditionError as error:
            if self.required:
                raise
            return Done(notes=(*reasons, error.message))
        rewriter = model.rewriter()
        slots = window_slots(model, rewriter)
        if slots is None:
            raise PreconditionError("GP364", "the model has caches but no input input_ids or inputs_embeds")
        both: Literal["BitwiseAnd", "LogicalAnd"] = "BitwiseAnd" if model.dialect == "openvino" else "LogicalAnd"
        writer = WindowWriter(rewriter, positions_of_tokens(rewriter, StepBuilder(model, rewriter)), slots, both)
        for window in windows:
            writer.replace(window)
        rewriter.finish()
        return Done({"windows from positions": len(windows), "masks": len(writer)}, tuple(reasons))


def _windows(model: Model, *, of_operators: bool) -> Iterator[Window | UnsupportedError]:
    """Yield windows that count slots, and an error for each window that cannot count positions.

    Args:
        model: The model.
        of_operators: Whether to yield errors for windows that are attributes of operators.
    """
    windows = {window.node.name: window for window in find_windows(model)}
    attributes = {node.name for node in model.graph.nodes if operator_window(node) is not None}
    for block in analyze_caches(model).attention:
        if not block.is_windowed or (block.node in attributes and not of_operators):
            continue
        window = windows.get(block.node)
        obstacle = None if window is None else window.obstacle
        if block.window_in == "state":
            reason = "the cache stores only the window"
        elif window is not None and window.mask.counts_positions:
            continue
        elif window is None or obstacle is not None:
            reason = "no mask implements it" if obstacle is None else obstacle.reason
        else:
            yield window
            continue
        yield UnsupportedError("GP364", f"the window of attention {block.node} cannot count positions: {reason}")


def check_inputs(graph: Graph) -> None:
    """Check that inputs give the positions of tokens.

    Args:
        graph: The graph.

    Raises:
        PreconditionError: GP361, no input position_ids; GP364, no input attention_mask ``[batch, sequence]``.
    """
    if "position_ids" not in graph.parameters:
        raise PreconditionError(
            "GP361", "the model has no input position_ids", "run expose-position-ids before window-from-positions"
        )
    if graph.parameters["position_ids"].rank != 2:
        # Tokens of an image share positions, but windows count tokens.
        raise PreconditionError("GP361", "expected position_ids [batch, length], got several positions a token")
    mask = graph.parameters.get("attention_mask")
    if mask is None or mask.rank != 2:
        raise PreconditionError(
            "GP364", "the model has no input attention_mask [batch, sequence], which counts positions"
        )


def positions_of_tokens(rewriter: Rewriter, step: StepBuilder) -> tuple[Handle, Handle]:
    """Return positions of keys ``[batch, 1, 1, sequence]`` and queries ``[batch, 1, length, 1]``, i64.

    Args:
        rewriter: Rewriter of a model that `check_inputs` accepts.
        step: The lengths of its step.
    """
    write, inputs = rewriter.under("window"), rewriter.graph.parameters
    tokens, seen = (write.convert(inputs[name], "i64") for name in ("position_ids", "attention_mask"))
    counted = write.op("Subtract", write.op("CumSum", seen, axis=1), 1, label="counted")
    past = write.slice(counted, 0, step.of("past"), axis=1, label="of_past")
    joined = write.op("Concat", past, tokens, axis=1, label="joined")
    keys = write.op("Unsqueeze", joined, axes=[1, 2], label="key_positions")
    return keys, write.op("Unsqueeze", tokens, axes=[1, 3], label="query_positions")
