"""The pass `insert-trim`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import TRIM_NOTE, OpenVINOModel
from graphpass.engine.conditions import HAS_CACHES, STATEFUL
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
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

__all__ = ["InsertTrim"]


@dataclass(frozen=True)
class InsertTrim(Pass[Model]):
    """Cut KV caches to the length that the attention mask leaves for the past, inside the graph, before a step.

    A caller drops the last positions by feeding a shorter mask; nothing else moves. Where the model has no
    ``attention_mask`` and ``input_ids`` from which the length follows, it gets an input ``past_len`` i64 ``[1]``; a
    number beyond the end keeps all. Linear and cross caches have no positions and are left alone.

    The cut stands behind the beam Gather, which stays. GPU plugins crop the cache in place where they know the form;
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

    name: ClassVar[str] = "insert-trim"
    requires = (HAS_CACHES,)

    trim: Trim = "slice"

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        caches = growing_caches(model)
        if not caches:
            return Skipped(f"no KV cache to cut: the model is of kind {analyze_caches(model).kind}")
        if isinstance(model, OnnxModel):
            if self.trim != "slice":
                raise PreconditionError("GP301", f"trim={self.trim} is for OpenVINO IR", "leave the option out")
            _trim_onnx(model, caches)
        elif isinstance(model, OpenVINOModel):
            if missing := STATEFUL.missing(model):
                raise PreconditionError("GP302", f"needs {STATEFUL.name!r}, but {missing}", STATEFUL.hint)
            _trim_openvino(model, caches, self.trim)
        return Changed(model, {"caches cut": len(caches)})


def _trim_openvino(model: OpenVINOModel, caches: tuple[Cache, ...], trim: Trim) -> None:
    native = model.ov_model
    reads = reads_of(native)
    pasts = {cache.name: past_of(reads[cache.name]) for cache in caches}
    length = past_length(native)
    for cache in caches:
        past, readers = pasts[cache.name]
        axis = cache.axes.sequence
        assert axis is not None
        cut = trimmed(past, length, axis, trim, f"{reads[cache.name].get_friendly_name()}/trim")
        let_read(readers, cut, past, length, axis)
    if trim != "slice":
        model.write_note(TRIM_NOTE, trim)
    native.validate_nodes_and_infer_types()


def _trim_onnx(model: OnnxModel, caches: tuple[Cache, ...]) -> None:
    past = OnnxPast(model, InsertTrim.name)
    write, length = past.writer, past.length()
    for cache in caches:
        axis = write.integers([cache.axes.sequence or 0])
        bounds = (write.integers([0]), length, axis, write.integers([1]))
        past.replace(cache.read, write.op("Slice", cache.read, *bounds, label=f"{cache.read}/trim"))
    past.finish()
