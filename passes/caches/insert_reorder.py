"""The pass `insert-reorder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.tensors import element_code
from graphpass.dialects.openvino.model import TRIM_NOTE, OpenVINOModel
from graphpass.dialects.openvino.rewrite import add_input, beam_gather, drop_unread_input, has_input, integers, named
from graphpass.dialects.openvino.variables import conversions
from graphpass.engine.conditions import STATEFUL, STATELESS
from graphpass.engine.passes import Changed, Condition, Pass, PassResult, Skipped
from graphpass.errors import PreconditionError
from graphpass.ir.cache import Cache
from graphpass.ir.model import Model
from graphpass.passes.caches.slots import (
    OnnxPast,
    Trim,
    growing_caches,
    let_read,
    past_length,
    past_of,
    reads_of,
    trimmed,
)

if TYPE_CHECKING:
    import openvino

__all__ = ["InsertReorder"]


@dataclass(frozen=True)
class InsertReorder(Pass[Model]):
    """Let a caller move positions of the KV caches and drop the last ones, inside the graph, before a step.

    Slot ``dst_idx[i]`` takes the old value of slot ``src_idx[i]``; then the cache is cut to the length that the
    attention mask leaves for the past. Where the model has no ``attention_mask`` and ``input_ids`` from which that
    follows, it gets an input ``past_len`` i64 ``[1]``; a number beyond the end keeps all. Names, types and the empty
    encodings are those with which the ONNX Runtime OpenVINO provider drives its own models
    (ov_stateful_patch_utils.cc): ``src_idx`` i32 ``[n]``, ``dst_idx`` i32; ``n = 0`` moves nothing. Destinations are
    distinct. Linear and cross caches have no positions and are left alone.

    ``gpu`` is the form that OpenVINO's GPU plugin looks for (kv_cache_fusion.cpp): ScatterElementsUpdate directly on
    the ReadValue with ``dst_idx`` a Parameter ``[batch, heads, n, head_dim]``, whose elements are destination slots,
    followed by a Slice. Caches of other head counts, sizes or order of axes than the first get a
    ``dst_idx_<heads>x<head_dim>`` of their own (``_2``, ``_3`` .. behind it where only the order differs). It excludes
    a beam Gather on the same cache, so that goes; ``beam_idx`` stays where linear caches read it. On the CPU plugin the
    form is right but loses the fused attention (3 to 6 times slower steps).

    ``compact`` is for runtimes that look for no form: ``dst_idx`` is ``[n]``, which slot each slot of the past comes
    from is worked out once for all caches, and each is moved and cut by one Gather, behind the one of ``beam_idx``.
    ``onnx`` is the same on the past inputs of an ONNX model.

    Options:
        form: The pattern to emit.
        trim: ``begin-one``, of form ``gpu`` alone, is a StridedSlice that begins at 1: what the GPU plugin of 2026.4.1
            fuses, by a bug of its matcher, and runs as if it began at 0. On all other devices and versions it drops
            the first position, so the model is marked (rt_info ``graphpass/trim``), and nothing else takes it.

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

    Raises:
        PreconditionError: GP302 the model is not stateful, or for ``onnx`` not stateless; GP301 the form is of the
            other format; GP319 it has reorder inputs already.
        UnsupportedError: GP340 an opset before 13; GP365 a cache whose positions cannot be moved.
    """

    name: ClassVar[str] = "insert-reorder"

    form: Literal["gpu", "compact", "onnx"] = "gpu"
    trim: Trim = "slice"

    def __post_init__(self) -> None:
        """Check that the options fit."""
        if self.trim != "slice" and self.form != "gpu":
            raise ValueError(f"trim={self.trim} is of form gpu, not of {self.form}")

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        self._check(model)
        caches = growing_caches(model)
        if not caches:
            return Skipped(f"no KV cache to reorder: the model is of kind {analyze_caches(model).kind}")
        if isinstance(model, OnnxModel):
            _reorder_onnx(model, caches)
        elif isinstance(model, OpenVINOModel) and self.form == "compact":
            _reorder_compactly(model.ov_model, caches)
        elif isinstance(model, OpenVINOModel):
            return _reorder_for_gpus(model, caches, self.trim)
        return Changed(model, {"caches reordered": len(caches)})

    def _check(self, model: Model) -> None:
        """That ``model`` is of the format and the state that the form is for."""
        if (self.form == "onnx") != (model.dialect == "onnx"):
            hint = "form=onnx works on ONNX; gpu and compact on OpenVINO IR, after to-openvino and make-stateful"
            raise PreconditionError("GP301", f"form {self.form} is not for a model in {model.dialect}", hint)
        condition: Condition = STATELESS if self.form == "onnx" else STATEFUL
        if missing := condition.missing(model):
            raise PreconditionError("GP302", f"needs {condition.name!r}, but {missing}", condition.hint)


def _reorder_for_gpus(model: OpenVINOModel, caches: tuple[Cache, ...], trim: Trim) -> PassResult:
    native = model.ov_model
    length = past_length(native)
    source = add_input(native, "src_idx", "i32", [-1])
    destinations = _Destinations(native)
    reads = reads_of(native)
    for cache in caches:
        _reorder(reads[cache.name], cache, (source, destinations.of(cache), length), trim)
    statistics = {"caches reordered": len(caches), "dst_idx inputs": destinations.count}
    notes = ["the CPU plugin does not fuse attention with a reordered cache; GPU plugins do"]
    if drop_unread_input(native, "beam_idx"):
        notes.append("beam_idx is gone: a cache is reordered by beam_idx or by src_idx and dst_idx, never by both")
    if trim != "slice":
        model.write_note(TRIM_NOTE, trim)
    native.validate_nodes_and_infer_types()
    return Changed(model, statistics, tuple(notes))


def _reorder_compactly(native: openvino.Model, caches: tuple[Cache, ...]) -> None:
    from openvino import opset8, opset13

    length = past_length(native)
    source, destination = (add_input(native, name, "i32", [-1]) for name in ("src_idx", "dst_idx"))
    reads, first = reads_of(native), caches[0]
    # Before anything that is written reads them, too.
    pasts = {cache.name: past_of(reads[cache.name]) for cache in caches}
    shape = named(opset13.shape_of(reads[first.name], "i64"), "slots/shape")
    size = opset8.gather(shape, integers(first.axes.sequence or 0, "slots/sequence"), integers(0, "slots/axis"))
    slots = opset13.range(integers(0, "slots/first"), named(size, "slots/count"), integers(1, "slots/step"), "i64")
    sources = named(opset13.convert(source, "i64"), "slots/sources")
    order = opset13.scatter_elements_update(named(slots, "slots"), destination, sources, integers(0, "slots/places"))
    kept = trimmed(named(order, "slots/order"), length, 0, "slice", "slots/kept")
    for cache in caches:
        name, axis = reads[cache.name].get_friendly_name(), cache.axes.sequence
        assert axis is not None
        along = integers(axis, f"{name}/reorder/axis")
        past, readers = pasts[cache.name]
        moved = named(opset8.gather(past, kept, along), f"{name}/reorder")
        for reader in readers:
            reader.replace_source_output(moved.output(0))
    native.validate_nodes_and_infer_types()


def _reorder_onnx(model: OnnxModel, caches: tuple[Cache, ...]) -> None:
    past = OnnxPast(model, "insert-reorder")
    write = past.writer
    source, destination = (past.add_input(name, "i32", ["moved"]) for name in ("src_idx", "dst_idx"))
    first = caches[0]
    size = write.op("Squeeze", write.size(first.read, first.axes.sequence or 0), write.integers([0]))
    slots = write.op("Range", write.integers(0), size, write.integers(1))
    order = write.op("ScatterElements", slots, destination, write.op("Cast", source, to=element_code("i64")), axis=0)
    kept = write.op("Slice", order, write.integers([0]), past.length(), write.integers([0]), write.integers([1]))
    for cache in caches:
        new = write.op("Gather", cache.read, kept, label=f"{cache.read}/reordered", axis=cache.axes.sequence)
        past.replace(cache.read, new)
    past.finish()


def _reorder(
    read: openvino.Node, cache: Cache, slots: tuple[openvino.Node, openvino.Node, openvino.Node], trim: Trim
) -> None:
    """Move and cut one cache; ``slots``: from where, to where, and how many are kept."""
    from openvino import opset3, opset8

    name, axis = read.get_friendly_name(), cache.axes.sequence
    assert axis is not None
    source, destination, past_length = slots
    state, readers = _state(read, name)
    moved = named(opset8.gather(state, source, integers(axis, f"{name}/reorder/source_axis")), f"{name}/reorder/moved")
    updated = named(
        opset3.scatter_elements_update(state, destination, moved, integers(axis, f"{name}/reorder/axis")),
        f"{name}/reorder",
    )
    let_read(readers, trimmed(updated, past_length, axis, trim, f"{name}/trim"), state, past_length, axis)


def _state(read: openvino.Node, name: str) -> tuple[openvino.Node, set[openvino.Input]]:
    """What holds a cache's positions in the type in which the model reads them, and all who read it.

    The plugin takes one Convert, directly behind the ReadValue, and no beam Gather; all else reads what is reordered
    and cut, the shapes too.
    """
    from openvino import opset13

    converts = conversions(read.output(0))
    gather = beam_gather(read) or (beam_gather(converts[0]) if converts else None)
    readers = read.output(0).get_target_inputs()
    if gather is not None:
        readers = {reader for reader in readers if reader.get_node().get_name() != gather.get_name()}
        readers |= gather.output(0).get_target_inputs()
        converts = converts or conversions(gather.output(0))
    if not converts:
        return read, readers
    state = named(opset13.convert(read, converts[0].get_output_element_type(0).to_string()), f"{name}/converted")
    for node in converts:
        readers |= node.output(0).get_target_inputs()
    return state, {reader for reader in readers if reader.get_node().get_name() not in _names(converts, gather)}


def _names(converts: list[openvino.Node], gather: openvino.Node | None) -> set[str]:
    return {node.get_name() for node in (*converts, *([gather] if gather is not None else []))}


class _Destinations:
    """One ``dst_idx`` input for each distinct layout of caches; the first cache's is called ``dst_idx``."""

    def __init__(self, native: openvino.Model) -> None:
        self._native = native
        self._made: dict[tuple[int, ...], openvino.Node] = {}

    @property
    def count(self) -> int:
        """How many inputs there are."""
        return len(self._made)

    def of(self, cache: Cache) -> openvino.Node:
        """The input that names destination slots of ``cache``."""
        shape = [dimension if isinstance(dimension, int) else -1 for dimension in cache.shape or ()]
        for axis in (cache.axes.batch, cache.axes.sequence):
            if axis is not None:
                shape[axis] = -1
        key = (*shape, cache.axes.sequence or 0)
        if key not in self._made:
            self._made[key] = add_input(self._native, self._name(cache, shape), "i32", shape)
        return self._made[key]

    def _name(self, cache: Cache, shape: list[int]) -> str:
        if not self._made:
            return "dst_idx"
        sizes = (shape[axis] for axis in (cache.axes.heads, cache.axes.head_dim) if axis is not None)
        name = "dst_idx_" + "x".join("any" if size < 0 else str(size) for size in sizes)
        taken = sum(
            has_input(self._native, f"{name}{end}") for end in ("", *(f"_{i}" for i in range(2, len(self._made) + 1)))
        )
        return f"{name}_{taken + 1}" if taken else name
