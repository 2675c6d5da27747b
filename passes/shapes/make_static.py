"""The pass `make-static`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.padding import absorbs_padding
from graphpass.analysis.lengths.past_order import past_order
from graphpass.engine.conditions import HAS_CACHES, STATELESS
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.ir.positions import check_positions
from graphpass.ir.types import Dialect
from graphpass.passes.masks.mask_padding import MaskPadding

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache

__all__ = ["MakeStatic"]


@dataclass(frozen=True)
class MakeStatic(Pass[Any]):
    """Fix all shapes: one sequence, so many new tokens a run behind a past of so many slots.

    That is what ahead-of-time compilers take, NPUs' above all. Two such models of one dynamic one make a prefill and a
    decode model, which share its weights (`graphpass split`).

    The past is a buffer of which a run uses what ``attention_mask`` shows; the new tokens stand behind it, so that the
    mask has ``past + length`` columns. Outputs hold the new positions only: who runs the model writes them into the
    buffer (`graphpass.runtime.open_pair`). Fewer tokens than ``length`` are padded on the left, where the mask hides
    padding; so the last row is always the last token, and of logits only that row is computed.

    A model must not count slots that the mask hides. What does is refused: absolute windows (`window-from-positions`
    mends them), positions from the past's length (`expose-position-ids`). States of linear layers are kept from
    padding as `mask-padding` does it; where that cannot be, the model is refused.

    Options:
        length: New tokens a run takes.
        past: Slots of the past.

    Shapes:
        input_ids, position_ids ``[1, length]``; attention_mask ``[1, past + length]``; past ``[1, heads, past,
        head_dim]``, present ``[1, heads, length, head_dim]``, in any order; logits ``[1, 1, vocabulary]``; no dimension
        of any value is left open.

    Before:
        past_key_values.0.key [?, heads, ?, head_dim] -> Concat(., key) = present.0.key [?, heads, ?, head_dim]
    After:
        past_key_values.0.key [1, heads, past, head_dim] -> Concat(., key); key = present.0.key [1, heads, length, ..]

    Raises:
        PreconditionError: GP302, no caches, or stateful.
        UsageError: GP266, ``length`` or ``past`` is no number of positions.
        UnsupportedError: GP392 the model sees slots that the mask hides; GP393 a dimension stays open, or a cache is
            not appended to by a Concat.
    """

    name: ClassVar[str] = "make-static"
    dialect: ClassVar[Dialect | None] = None
    requires = (HAS_CACHES, STATELESS)

    length: int = 1
    past: int = 1024

    def run(self, model: Model) -> PassResult:
        """See `Pass.run`."""
        for name, value in (("length", self.length), ("past", self.past)):
            check_positions(name, value)
        if all(isinstance(size, int) for port in model.inputs for size in port.shape or (None,)):
            return Skipped("all inputs are of fixed shapes")
        inventory = analyze_caches(model)
        for cache in inventory.caches:
            if cache.kind not in {"kv", "linear"} or cache.write is None or cache.axes.batch is None:
                raise UnsupportedError("GP392", f"cache {cache.name} of kind {cache.kind} cannot get a fixed shape")
        if past_order(model) == "index":
            raise UnsupportedError(
                "GP392",
                "the model counts slots of its caches, also those that the mask hides",
                "on ONNX run lower-operators before; on an IR fuse-attention, expose-position-ids and "
                "window-from-positions; graphpass split does",
            )
        if self.length > 1 and inventory.of_kind("linear"):
            _keep_padding_out(model, inventory.of_kind("linear"))
        if model.dialect == "onnx":
            from graphpass.dialects.onnx.model import OnnxModel
            from graphpass.passes.shapes.onnx_static import make_static as make_onnx_static

            assert isinstance(model, OnnxModel)
            make_onnx_static(model, inventory.caches, self.length, self.past)
        else:
            from graphpass.dialects.openvino.model import OpenVINOModel
            from graphpass.passes.shapes.openvino_static import make_static as make_openvino_static

            assert isinstance(model, OpenVINOModel)
            make_openvino_static(model, inventory.caches, self.length, self.past)
        Phase(self.length, self.past, inventory.caches).note(model)
        return Changed(model, {"caches": len(inventory.caches), "length": self.length, "past": self.past})


def _keep_padding_out(model: Model, caches: tuple[Cache, ...]) -> None:
    """Let states take in no padding.

    Raises:
        UnsupportedError: GP392, one does.
    """
    if model.dialect == "openvino":
        from graphpass.dialects.openvino.model import OpenVINOModel

        assert isinstance(model, OpenVINOModel)
        MaskPadding().run(model)
        model.mark_edited()
    for cache in caches:
        if absorbs_padding(model, cache):
            raise UnsupportedError(
                "GP392",
                f"padding would enter the state {cache.name}: no attention_mask hides it there",
                "as an IR, made by to-openvino, the model may work; or feed it token by token, with a length of 1",
            )
