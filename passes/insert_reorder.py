"""The pass `insert-reorder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from graphpass.analysis.caches import analyze_caches
from graphpass.caches import Cache
from graphpass.conditions import STATEFUL
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.manager import Changed, Pass, PassResult, Skipped
from graphpass.model import Dialect
from graphpass.openvino_model import OpenVINOModel
from graphpass.rewrite import add_input, beam_gather, drop_unread_input, has_input, input_length, integers, named
from graphpass.variables import conversions

if TYPE_CHECKING:
    import openvino

__all__ = ["InsertReorder"]


@dataclass(frozen=True)
class InsertReorder(Pass[OpenVINOModel]):
    """Let a caller move positions of the KV caches and drop the last ones, inside the graph, before a step.

    Slot ``dst_idx[i]`` takes the old value of slot ``src_idx[i]``; then the cache is cut to the length that the
    attention mask leaves for the past. Names, types and the empty encodings are those with which the ONNX Runtime
    OpenVINO provider drives its own models (ov_stateful_patch_utils.cc): ``src_idx`` i32 ``[n]``, ``dst_idx`` i32
    ``[batch, heads, n, head_dim]`` whose elements are destination slots; ``n = 0`` moves nothing. Caches of other head
    counts, sizes or order of axes than the first get a ``dst_idx_<heads>x<head_dim>`` of their own (``_2``, ``_3`` ..
    behind it where only the order differs). Linear and cross caches have no positions and are left alone.

    The form is the GPU plugin's (kv_cache_fusion.cpp): ScatterElementsUpdate directly on the ReadValue with ``dst_idx``
    a Parameter, followed by a Slice. It excludes a beam Gather on the same cache, so that goes; ``beam_idx`` stays
    where linear caches read it. On the CPU plugin the form is right but loses the fused attention (3 to 6 times slower
    steps).

    Options:
        form: The pattern to emit; ``gpu`` is the one there is.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order of axes.

    Before:
        ReadValue -> Gather(., beam_idx) -> Concat(., new) -> Assign
    After:
        ReadValue -> ScatterElementsUpdate(., dst_idx, Gather(ReadValue, src_idx)) -> Slice(0 : past length)
        -> Concat(., new) -> Assign

    Raises:
        PreconditionError: GP302 the model is not stateful; GP319 it has reorder inputs already.
        UnsupportedError: GP325 no attention_mask and input_ids from which the past's length follows.
    """

    name: ClassVar[str] = "insert-reorder"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (STATEFUL,)

    form: Literal["gpu"] = "gpu"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        native = model.ov_model
        inventory = analyze_caches(model)
        caches = inventory.of_kind("kv")
        if not caches:
            return Skipped(f"no KV cache to reorder: the model is of kind {inventory.kind}")
        if has_input(native, "src_idx") or has_input(native, "dst_idx"):
            raise PreconditionError("GP319", "the model has reorder inputs already")
        past_length = _past_length(native)
        source = add_input(native, "src_idx", "i32", [-1])
        destinations = _Destinations(native)
        reads = {
            node.get_attributes()["variable_id"]: node
            for node in native.get_ops()
            if node.get_type_name() == "ReadValue"
        }
        for cache in caches:
            _reorder(reads[cache.name], cache, source, destinations.of(cache), past_length)
        statistics = {"caches reordered": len(caches), "dst_idx inputs": destinations.count}
        notes = ["the CPU plugin does not fuse attention with a reordered cache; GPU plugins do"]
        if drop_unread_input(native, "beam_idx"):
            notes.append("beam_idx is gone: a cache is reordered by beam_idx or by src_idx and dst_idx, never by both")
        native.validate_nodes_and_infer_types()
        return Changed(model, statistics, tuple(notes))


def _reorder(
    read: openvino.Node, cache: Cache, source: openvino.Node, destination: openvino.Node, past_length: openvino.Node
) -> None:
    from openvino import opset3, opset8

    name, axis = read.get_friendly_name(), cache.axes.sequence
    assert axis is not None
    state, readers = _state(read, name)
    moved = named(opset8.gather(state, source, integers(axis, f"{name}/reorder/source_axis")), f"{name}/reorder/moved")
    updated = named(
        opset3.scatter_elements_update(state, destination, moved, integers(axis, f"{name}/reorder/axis")),
        f"{name}/reorder",
    )
    bounds = [integers([0], f"{name}/trim/start"), past_length, integers([1], f"{name}/trim/step")]
    trimmed = named(opset8.slice(updated, *bounds, integers([axis], f"{name}/trim/axis")), f"{name}/trim")
    for reader in readers:
        reader.replace_source_output(trimmed.output(0))


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


def _past_length(native: openvino.Model) -> openvino.Node:
    """How many positions the past holds, i64 [1]: length of the attention mask less that of the new tokens."""
    from openvino import opset8

    tokens = next((name for name in ("input_ids", "inputs_embeds") if has_input(native, name)), None)
    if tokens is None or not has_input(native, "attention_mask"):
        raise UnsupportedError(
            "GP325",
            "the past's length does not follow from the inputs: it takes attention_mask [batch, length] and input_ids",
        )
    lengths = [input_length(native, name, f"past_length/{name}") for name in ("attention_mask", tokens)]
    return named(opset8.subtract(*lengths), "past_length")


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
