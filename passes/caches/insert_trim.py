"""The pass `insert-trim`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.conditions import HAS_CACHES, STATEFUL
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import PreconditionError
from graphpass.ir.cache import TRIM_NOTE
from graphpass.ir.model import Model
from graphpass.passes.caches.slots import Trim, growing_caches, past_length, past_of, redirect_to_cut, trimmed


@dataclass(frozen=True)
class InsertTrim(Pass[Model]):
    """Cut KV caches inside the graph to the past that the mask leaves.

    A caller drops the last positions by feeding a shorter mask; nothing else moves. Without ``attention_mask`` and
    ``input_ids``, from which the length follows, the model gets an input ``past_len`` i64 ``[1]``; a number beyond the
    end keeps all. Linear and cross caches have no positions and are left alone.

    The cut follows the beam Gather, which stays. GPU plugins crop the cache in place if they know the form;
    the CPU plugin no longer fuses attention with the cache.

    Options:
        trim: As of `insert-reorder`: ``begin-one`` is for the GPU plugin of 2026.4.1 alone.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order of axes.

    Before:
        ReadValue -> Gather(., beam_idx) -> Concat(., new) -> Assign
        past -> Concat(., new) -> present
    After:
        ReadValue -> Gather(., beam_idx) -> Slice(0 : past length) -> Concat(., new) -> Assign
        past -> Slice(0 : past length) -> Concat(., new) -> present

    Raises:
        PreconditionError: GP302 the model has no caches, or is IR that is not stateful; GP301 ``begin-one`` for ONNX;
            GP319 its caches are cut already.
        UnsupportedError: GP340 an opset before 13; GP365 a cache whose positions cannot be cut.
    """

    name = "insert-trim"
    requires = (HAS_CACHES,)

    trim: Trim = "slice"

    def run(self, model: Model) -> Done | Skipped:
        caches = growing_caches(model)
        if not caches:
            return Skipped(f"no KV cache to cut: the model is of kind {analyze_caches(model).kind}")
        if model.dialect == "onnx" and self.trim != "slice":
            raise PreconditionError("GP301", f"trim={self.trim} is for OpenVINO IR", "leave the option out")
        if model.dialect == "openvino" and (missing := STATEFUL.missing(model)):
            raise PreconditionError("GP302", f"needs {STATEFUL.name!r}, but {missing}", STATEFUL.hint)
        graph, rewriter = model.graph, model.rewriter()
        pasts = [past_of(graph, cache) for cache in caches]
        length = past_length(rewriter)
        for cache, (past, uses) in zip(caches, pasts, strict=True):
            axis = cache.axes.sequence or 0
            cut = trimmed(rewriter, past, length, axis, self.trim, f"{cache.read}/trim")
            redirect_to_cut(rewriter, uses, cut, past, length, axis, self.trim)
        if self.trim != "slice":
            model.write_note(TRIM_NOTE, self.trim)
        rewriter.finish()
        return Done({"caches cut": len(caches)})
