"""The pass `insert-reorder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import beam_gather
from graphpass.engine.conditions import HAS_CACHES, STATEFUL, STATELESS
from graphpass.engine.passes import Condition, Done, Pass, Skipped
from graphpass.errors import PreconditionError
from graphpass.ir.cache import TRIM_NOTE, Cache
from graphpass.ir.graph import Use
from graphpass.ir.inputs import NEW_SLOTS, SOURCE_SLOTS
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter, claim_name
from graphpass.ir.writer import Handle, Operand
from graphpass.passes.attention.step_builder import StepBuilder
from graphpass.passes.caches.slots import Trim, conversions, growing_caches, past_with_uses, redirect_to_cut, trimmed


@dataclass(frozen=True)
class InsertReorder(Pass[Model]):
    """Move and drop positions of KV caches inside the graph, before a step.

    Slot ``dst_idx[i]`` is set to the previous value of slot ``src_idx[i]``; then the cache is cut to the length of
    ``attention_mask`` less that of ``input_ids``. A model without these inputs gets an input ``past_len`` i64 ``[1]``;
    a length beyond the end keeps all slots. Linear and cross caches are unchanged.

    The inputs have the names and types of the ONNX Runtime OpenVINO provider (ov_stateful_patch_utils.cc): ``src_idx``
    i32 ``[n]``, ``dst_idx`` i32. With ``n = 0`` no slot is moved. Destinations must be distinct.

    ``gpu`` is the form that OpenVINO's GPU plugin matches (kv_cache_fusion.cpp): ScatterElementsUpdate directly on
    the ReadValue, followed by a Slice. ``dst_idx`` is a Parameter ``[batch, heads, n, head_dim]``, whose elements are
    destination slots. If caches differ from the first in heads, sizes or order of axes, they read an additional input
    ``dst_idx_<heads>x<head_dim>`` (followed by ``_2``, ``_3`` .. if only the order differs). The beam Gather of a
    reordered cache is removed; ``beam_idx`` is kept if linear caches read it. The CPU plugin computes the form
    correctly, but no longer fuses attention (steps take 3 to 6 times as long).

    ``compact`` is for other runtimes: ``dst_idx`` is ``[n]``, the source of each slot is computed once for all caches,
    and one Gather moves and cuts each cache, after the beam Gather. ``onnx`` is the same on the past inputs of an ONNX
    model.

    ``cut``, for both dialects, only drops the last positions, if the caller feeds a shorter mask. The cut follows the
    beam Gather, which is kept. GPU plugins that match the form crop the cache in place; the CPU plugin no longer fuses
    attention with the cache.

    Options:
        form: The form to write.
        trim: Operator that cuts. ``begin-one``, for forms ``gpu`` and ``cut`` in OpenVINO IR, is a StridedSlice that
            begins at 1. Because of a bug in its matcher, the GPU plugin of 2026.4.1 fuses this form and executes it as
            if it began at 0. All other devices and versions drop the first position: rt_info ``graphpass/trim`` marks
            the model, and graphpass refuses to run it elsewhere.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order of axes.

    Before:
        ReadValue -> Gather(., beam_idx) -> Concat(., new) -> Assign
    After:
        ReadValue -> ScatterElementsUpdate(., dst_idx, Gather(ReadValue, src_idx)) -> Slice(0 : past length)
        -> Concat(., new) -> Assign

    Before:
        past -> Concat(., new) -> present
    After:
        past -> Gather(., ScatterElements(Range(0, length), dst_idx, src_idx)[: past length]) -> Concat(., new)
        -> present

    Before:
        past -> Concat(., new) -> present
    After:
        past -> Slice(0 : past length) -> Concat(., new) -> present

    Raises:
        PreconditionError: GP302, the model is not stateful, or for ``onnx`` not stateless; GP301, the form or
            ``begin-one`` is for the other dialect; GP319, the model already cuts its caches, or has inputs of this
            pass.
        UnsupportedError: GP340, an opset before 13; GP365, a cache whose positions cannot be moved.
    """

    name = "insert-reorder"

    form: Literal["gpu", "compact", "onnx", "cut"] = "gpu"
    trim: Trim = "slice"

    def __post_init__(self) -> None:
        """Check that ``trim`` is supported by ``form``.

        Raises:
            ValueError: ``form`` does not support ``trim``.
        """
        if self.trim != "slice" and self.form not in {"gpu", "cut"}:
            raise ValueError(f"trim={self.trim} requires form gpu or cut, got {self.form}")

    def run(self, model: Model) -> Done | Skipped:
        self._check(model)
        caches = growing_caches(model)
        if not caches:
            return Skipped(f"no KV cache to reorder: the model is of kind {analyze_caches(model).kind}")
        if self.form == "cut":
            return _cut(model, caches, self.trim)
        return _reorder_for_gpus(model, caches, self.trim) if self.form == "gpu" else _reorder_compactly(model, caches)

    def _check(self, model: Model) -> None:
        is_onnx = model.dialect == "onnx"
        if is_onnx and self.trim != "slice":
            raise PreconditionError("GP301", f"trim={self.trim} is for OpenVINO IR", "leave the option out")
        if self.form != "cut" and (self.form == "onnx") != is_onnx:
            hint = "form=onnx works on ONNX; gpu and compact on OpenVINO IR, after to-openvino and make-stateful"
            raise PreconditionError("GP301", f"form {self.form} is not for a model in {model.dialect}", hint)
        conditions: dict[str, Condition] = {"onnx": STATELESS, "cut": HAS_CACHES}
        _require(model, conditions.get(self.form, STATEFUL))


def _require(model: Model, condition: Condition) -> None:
    if missing := condition.missing(model):
        raise PreconditionError("GP302", f"requires {condition.name!r}, but {missing}", condition.hint)


def _cut(model: Model, caches: tuple[Cache, ...], trim: Trim) -> Done:
    if model.dialect == "openvino":
        _require(model, STATEFUL)
    graph, rewriter = model.graph, model.rewriter()
    pasts = [past_with_uses(graph, cache) for cache in caches]
    length = StepBuilder(model, rewriter, adds_input=True).of("past")
    for cache, (past, uses) in zip(caches, pasts, strict=True):
        axis = cache.axes.sequence or 0
        cut = trimmed(rewriter, past, length, axis, trim, f"{cache.read}/trim")
        redirect_to_cut(rewriter, uses, cut, past, length, axis, trim)
    _finish(model, rewriter, trim)
    return Done({"caches cut": len(caches)})


def _finish(model: Model, rewriter: Rewriter, trim: Trim) -> None:
    if trim != "slice":
        model.write_note(TRIM_NOTE, trim)
    rewriter.finish()


def _reorder_for_gpus(model: Model, caches: tuple[Cache, ...], trim: Trim) -> Done:
    rewriter = model.rewriter()
    states = [_state(rewriter, cache) for cache in caches]
    length = StepBuilder(model, rewriter, adds_input=True).of("past")
    source = rewriter.input(SOURCE_SLOTS, "i32", [-1])
    destinations = _Destinations(rewriter)
    for cache, (state, uses) in zip(caches, states, strict=True):
        name, axis = cache.read, cache.axes.sequence or 0
        moved = rewriter.op("Gather", state, source, axis=axis, name=f"{name}/reorder/moved")
        target = destinations.of(cache)
        # kv_cache_fusion.cpp looks for version 3 of the operator.
        updated = rewriter.op("ScatterElementsUpdate", state, target, moved, axis=axis, opset=3, name=f"{name}/reorder")
        cut = trimmed(rewriter, updated, length, axis, trim, f"{name}/trim")
        redirect_to_cut(rewriter, uses, cut, state, length, axis, trim)
    _finish(model, rewriter, trim)
    notes = ["the CPU plugin does not fuse attention with a reordered cache; GPU plugins do"]
    cleaner = model.rewriter()
    if cleaner.drop_input("beam_idx"):
        cleaner.finish()
        notes.append("input beam_idx is removed: src_idx and dst_idx reorder the caches instead")
    return Done({"caches reordered": len(caches), "dst_idx inputs": destinations.count}, tuple(notes))


def _reorder_compactly(model: Model, caches: tuple[Cache, ...]) -> Done:
    graph, rewriter = model.graph, model.rewriter()
    write = rewriter.under("slots")
    pasts = [past_with_uses(graph, cache) for cache in caches]
    length = StepBuilder(model, rewriter, adds_input=True).of("past")
    source, destination = (rewriter.input(name, "i32", ["moved"]) for name in (SOURCE_SLOTS, NEW_SLOTS))
    first = caches[0]
    read = graph.parameters.get(first.read) or graph.reads[first.read].outputs[0]
    count = write.op("Gather", write.op("ShapeOf", read), first.axes.sequence or 0, axis=0, label="count")
    slots = write.op("Range", 0, count, 1)
    sources = write.op("Convert", source, to="i64", label="sources")
    order = write.op("ScatterElementsUpdate", slots, destination, sources, axis=0, label="order")
    kept = trimmed(rewriter, order, length, 0, "slice", "slots/kept")
    for cache, (past, uses) in zip(caches, pasts, strict=True):
        moved = rewriter.op("Gather", past, kept, axis=cache.axes.sequence, name=f"{cache.read}/reordered")
        for use in uses:
            rewriter.redirect(use.node, use.port, moved)
    rewriter.finish()
    return Done({"caches reordered": len(caches)})


def _state(rewriter: Rewriter, cache: Cache) -> tuple[Operand, list[Use]]:
    """Return the value to reorder, and all uses of the cache.

    The plugin matches one Convert directly after the ReadValue, and no beam Gather. All uses, of the shape as well,
    are redirected to the reordered and cut cache.
    """
    graph = rewriter.graph
    read = graph.reads[cache.read].outputs[0]
    converts = conversions(graph, read)
    gather = beam_gather(graph, read) or (beam_gather(graph, converts[0].outputs[0]) if converts else None)
    if gather is not None and not converts:
        converts = conversions(graph, gather.outputs[0])
    between = [*converts, *([gather] if gather is not None else [])]
    sources = dict.fromkeys([read, *(node.outputs[0] for node in between)])
    uses = [use for value in sources for use in graph.uses(value) if use.node not in between]
    if not converts:
        return read, uses
    kind = converts[0].outputs[0].element_type
    return rewriter.op("Convert", read, to=kind, name=f"{cache.read}/converted"), uses


class _Destinations:
    """Adds one ``dst_idx`` input for each layout of caches."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._names = set(rewriter.graph.parameters)
        self._made: dict[tuple[int, ...], Handle] = {}

    @property
    def count(self) -> int:
        return len(self._made)

    def of(self, cache: Cache) -> Handle:
        shape = [dimension if isinstance(dimension, int) else -1 for dimension in cache.shape or ()]
        for axis in (cache.axes.batch, cache.axes.sequence):
            if axis is not None:
                shape[axis] = -1
        key = (*shape, cache.axes.sequence or 0)
        if key not in self._made:
            sizes = (shape[axis] for axis in (cache.axes.heads, cache.axes.head_dim) if axis is not None)
            suffix = "_" + "x".join("any" if size < 0 else str(size) for size in sizes) if self._made else ""
            self._made[key] = self._rewriter.input(claim_name(self._names, f"{NEW_SLOTS}{suffix}"), "i32", shape)
        return self._made[key]
