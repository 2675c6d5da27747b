"""Share pipelines of OpenVINO's runtimes: caches become variables, attention one operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from graphpass.analysis.caches.encoders import is_encoder
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.latents import find_latents
from graphpass.analysis.caches.packed import flat_caches, packed_caches
from graphpass.analysis.caches.step_tokens import absorbs_padding, find_step_tokens
from graphpass.analysis.equations.chunk_regions import find_chunks
from graphpass.dialects.openvino.frontend import LOWERED
from graphpass.engine.conditions import OPENVINO, STATEFUL
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.syntax import quote
from graphpass.engine.target import Target, require
from graphpass.errors import UsageError
from graphpass.ir.cache import Inventory
from graphpass.ir.inputs import is_merged
from graphpass.ir.model import Model
from graphpass.ir.operators import quantized_bits
from graphpass.targets.rules import encoder_error


@dataclass(frozen=True)
class StatefulTarget(Target):
    """Makes stateful models for a runtime of OpenVINO.

    Caches become variables that a ``beam_idx`` Gather reads, attention becomes ``ScaledDotProductAttention``. Positions
    and windows are exposed for paged attention, which reads neither the cache's length nor the mask.

    Attributes:
        cache: ``beam`` if ``beam_idx`` reorders rows, ``reorder`` if a caller moves and cuts slots.
        no_reorder: Reason that slots cannot be moved, and a hint; ``None`` if they can.
        takes_begin_one: Whether it runs caches cut by ``trim=begin-one``, see `insert-reorder`.
        before_attention: Further passes, before those on attention.
        after_stateful: Further passes, on the stateful model.
        feeds_positions: Whether it feeds ``position_ids`` to all models, also to those that need none.
        drops_identities: Whether operators that return their input are dropped.
        encoders: Whether it runs models without caches, such as encoders.
        expands_latents: Whether caches store keys and values instead of latents, to which no kernel appends.
        copies_shared: Whether each attention gets a copy of a shared cache, since no kernel shares one.
        hides_positions: Whether callers mask past positions out, so that windows must not count them.
        seq2seq: Whether it runs an encoder, and a decoder that stores keys and values of the encoder's states.
    """

    dialect = "openvino"
    output_file = "openvino_model.xml"
    contract = (OPENVINO, STATEFUL)
    no_reorder: ClassVar[tuple[str, str] | None] = None
    takes_begin_one: ClassVar[bool] = False
    before_attention: ClassVar[tuple[str, ...]] = ()
    after_stateful: ClassVar[tuple[str, ...]] = ()
    feeds_positions: ClassVar[bool] = False
    drops_identities: ClassVar[bool] = True
    seq2seq: ClassVar[bool] = False
    copies_shared: ClassVar[bool] = False
    expands_latents: ClassVar[bool] = False
    hides_positions: ClassVar[bool] = False
    encoders: ClassVar[bool] = False

    cache: Literal["beam", "reorder"] = "beam"

    @property
    def gives_up_fusion(self) -> bool:
        return self.cache == "reorder"

    @property
    def cuts_logits(self) -> bool:
        """Return whether the logits of the last token alone are computed."""
        return False

    @property
    def insert_reorder(self) -> str:
        """Return the pass that lets a caller move slots, as text."""
        return "insert-reorder"

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            UsageError: GP224, slots are to be movable, and the runtime takes no such model; GP226, there are none.
            UnsupportedError: GP338, the model is an encoder, and the runtime needs caches; GP367, the model is made for
                one version of OpenVINO's GPU plugin alone.
        """
        if not model.analysis(is_encoder):
            return self._pipeline(model, None)
        if not self.encoders:
            raise encoder_error(self.name, "cpu or gpu")
        if self.gives_up_fusion:
            raise UsageError("GP226", "cache=reorder requires a model with caches", "leave it out")
        return _whole(model)

    def require_contract(self, model: Model) -> None:
        """See `Target.require_contract`; encoders have no variables."""
        kept = (OPENVINO,) if self.encoders and model.analysis(is_encoder) else self.contract
        require(kept, model, self.name)

    def encoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        """See `Target.encoder_pipeline`.

        Raises:
            UsageError: GP226, the target does not support models of an encoder and a decoder; GP227, the encoder fills
                the caches of cross attention.
        """
        if not self.seq2seq:
            return super().encoder_pipeline(model, first)
        if first is None and model.dialect == "onnx":
            reason = "the encoder fills the caches of cross attention itself, as onnxruntime-genai requires"
            raise UsageError("GP227", reason, "export the model with optimum instead")
        return _whole(model)

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        return self._pipeline(model, first) if self.seq2seq else super().decoder_pipeline(model, first)

    def _pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        from graphpass.dialects.openvino.model import check_trim

        if self.cache == "reorder" and self.no_reorder is not None:
            raise UsageError("GP224", *self.no_reorder)
        if not self.takes_begin_one:
            check_trim(model, f"target {self.name}")
        inventory, has_chunks = analyze_caches(model), any(True for _ in find_chunks(model.graph))
        has_loops = any(model.graph.of_op("LinearAttention", "Loop", "Scan", "TensorIterator"))
        names = [
            *_to_openvino(model),
            *_if(has_loops or has_chunks, "fuse-gated-delta-net"),
            *_if(has_chunks, "rechunk-linear-attention"),
            *_if(first is not None, f"compute-cross-caches{{source={quote(str(first))}}}"),
            "change-precision",
            *_if(any(True for _ in model.graph.of_op("TopK")), "batch-experts"),
            *self.before_attention,
            *_if(packed_caches(inventory) or flat_caches(model, inventory), "unpack"),
            "fuse-attention",
            *_if(_reads_other_columns(model, inventory), "extend-mask-to-past"),
            *self._expose_positions(model, inventory),
            "expose-window",
            "simplify-shapes" if self.drops_identities else "simplify-shapes{identities=false}",
            "expose-alibi",
            *_if(self.expands_latents and find_latents(model), "expand-latents"),
            "standardize-layout",  # next to make-stateful, which asks for the same inventory
            *_if(self.copies_shared and self.cache == "beam" and _shares(inventory), "copy-shared-caches"),
            *_if(not inventory.stateful, "make-stateful"),
            *_if(inventory.of_kind("linear"), "widen-conv-window"),
            *_if(self.cache == "reorder", self.insert_reorder),
            *_if(first is not None, "keep-cross-caches"),
            *_if(
                self.hides_positions and any(block.is_windowed for block in inventory.attention),
                "window-from-positions{required=false}",
            ),
            *_if(self.cuts_logits, "last-logits"),
            "set-runtime-options",  # before passes that ask whether activations are scaled
            *self.after_stateful,
        ]
        return parse(",".join(names))

    def _expose_positions(self, model: Model, inventory: Inventory) -> tuple[str, ...]:
        """Return the pass by which positions become an input, if they are to be one.

        If padding leaks into linear states, even the positions of padding are results, unless they are counted from the
        mask or fed already; and the runtimes of encoder-decoder models feed no positions.
        """
        if self.feeds_positions:
            return ("expose-position-ids{always=true}",)
        counted = model.dialect == "onnx" and any(True for _ in model.graph.of_op("GroupQueryAttention"))
        if counted or any(port.name == "position_ids" for port in model.inputs):
            return ("expose-position-ids",)
        masks = "mask-padding" in self.before_attention
        leaks = not masks and any(absorbs_padding(model, cache) for cache in inventory.of_kind("linear"))
        leaks = leaks or inventory.kind == "linear" or bool(inventory.of_kind("cross"))
        return _if(not leaks, "expose-position-ids")


def _whole(model: Model) -> tuple[Pass[Any], ...]:
    """Return the passes for a model that keeps nothing."""
    counts = _if(any(port.name == "position_ids" for port in model.inputs), "count-positions")
    return parse(",".join([*_to_openvino(model), "change-precision", *counts, "fuse-attention", "simplify-shapes"]))


def _reads_other_columns(model: Model, inventory: Inventory) -> bool:
    """Return whether linear layers read other columns of attention_mask than the last."""
    from graphpass.analysis.equations.token_weights import find_weighing

    return find_step_tokens(model, inventory).masks_new_tokens or bool(model.analysis(find_weighing).of_others)


def _shares(inventory: Inventory) -> bool:
    keys = [block.key for block in inventory.attention if block.key is not None]
    return len(keys) > len(set(keys))


def _quantizes_caches(model: Model) -> bool:
    return any(quantized_bits(node) is not None for node in model.graph.of_op("GroupQueryAttention"))


def _to_openvino(model: Model) -> list[str]:
    if model.dialect == "openvino":
        return []
    # Files that hold the decoder for the first step and the one for all others choose by this input.
    has_branches = is_merged(model.graph)
    lowered = any(True for _ in model.graph.of_op(*LOWERED))
    return [
        *_if(has_branches, "select-branch"),
        *_if(_quantizes_caches(model), "dequantize-caches"),
        *_if(lowered, "lower-operators"),
        "to-openvino",
    ]


def _if(condition: object, name: str) -> tuple[str, ...]:
    return (name,) if condition else ()
