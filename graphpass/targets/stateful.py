"""Pipeline shared by OpenVINO's runtimes: caches become variables, attention becomes one operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from graphpass.analysis.attention.tiled_heads import find_tiled_heads
from graphpass.analysis.caches.encoders import is_encoder
from graphpass.analysis.caches.extra_outputs import extra_outputs
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.last_logits import find_last_token
from graphpass.analysis.caches.latents import find_latents
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.caches.packed import flat_caches, is_packed
from graphpass.analysis.caches.step_tokens import absorbs_padding, find_step_tokens
from graphpass.analysis.equations.chunk_regions import find_chunks
from graphpass.dialects.openvino.frontend import LOWERED, UPGRADED
from graphpass.engine.conditions import OPENVINO, STATEFUL
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.syntax import quote
from graphpass.engine.target import Target, require
from graphpass.errors import UsageError
from graphpass.ir.cache import Inventory
from graphpass.ir.graph import Graph
from graphpass.ir.inputs import narrow_inputs, token_input
from graphpass.ir.model import Model
from graphpass.ir.operators import quantized_bits
from graphpass.ir.quantizers import rounds_activations
from graphpass.ir.values import fixed_size
from graphpass.targets.rules import drop_ports, encoder_error, later_steps, upgrade_opset


@dataclass(frozen=True)
class StatefulTarget(Target):
    """Stateful models for a runtime of OpenVINO.

    Caches become variables that a ``beam_idx`` Gather reads, and attention becomes ``ScaledDotProductAttention``.
    Positions and windows are exposed for paged attention, which reads neither the cache's length nor the mask.

    Attributes:
        cache: ``beam`` if ``beam_idx`` reorders rows, ``reorder`` if the caller moves and trims slots.
        no_reorder: Reason why the runtime does not support moving slots, and a hint; ``None`` if it does.
        takes_begin_one: Whether the runtime supports caches trimmed by ``trim=begin-one``; see `insert-reorder`.
        before_attention: Additional passes, before those on attention.
        after_stateful: Additional passes, on the stateful model, or on a model without caches.
        feeds_positions: Whether the runtime feeds ``position_ids`` to all models, also to those without the input.
        feeds_mask: Whether the runtime requires the input ``attention_mask``.
        drops_identities: Whether to remove operators that return their input.
        encoders: Whether the runtime supports models without caches, such as encoders.
        expands_latents: Whether to store keys and values instead of latents, to which no kernel appends.
        exposes_partial_windows: Whether the runtime corrects windows inside of masks that allow more.
        copies_shared: Whether to copy shared caches for each attention block, because no kernel shares a cache.
        hides_positions: Whether callers mask past positions, so that windows must not count them.
        moves_slots: Whether the runtime gives slots other positions, so that chunks must count positions.
        pages_states: Whether the runtime stores recurrent states in blocks, for which Mamba-2 must be a Loop.
        reads_all_logits: Whether the runtime requires the logits of all tokens.
        generates: Whether the runtime reads only logits, and states of tokens.
        seq2seq: Whether the runtime supports an encoder, and a decoder that stores keys and values of its states.
    """

    dialect = "openvino"
    output_file = "openvino_model.xml"
    contract = (OPENVINO, STATEFUL)
    no_reorder: ClassVar[tuple[str, str] | None] = None
    takes_begin_one: ClassVar[bool] = False
    before_attention: ClassVar[tuple[str, ...]] = ()
    after_stateful: ClassVar[tuple[str, ...]] = ()
    feeds_positions: ClassVar[bool] = False
    feeds_mask: ClassVar[bool] = True
    drops_identities: ClassVar[bool] = True
    seq2seq: ClassVar[bool] = False
    copies_shared: ClassVar[bool] = False
    exposes_partial_windows: ClassVar[bool] = False
    expands_latents: ClassVar[bool] = False
    hides_positions: ClassVar[bool] = False
    moves_slots: ClassVar[bool] = False
    pages_states: ClassVar[bool] = False
    reads_all_logits: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    encoders: ClassVar[bool] = False

    cache: Literal["beam", "reorder"] = "beam"

    @property
    def gives_up_fusion(self) -> bool:
        return self.cache == "reorder"

    @property
    def cuts_logits(self) -> bool:
        """Return whether only the logits of the last token are computed."""
        return False

    @property
    def insert_reorder(self) -> str:
        """Return the pass, as text, that adds the inputs by which a caller moves slots."""
        return "insert-reorder"

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes, as `Target.pipeline`.

        Raises:
            UsageError: GP224, the runtime does not support ``cache=reorder``; GP226, the model has no caches to
                reorder.
            UnsupportedError: GP338, the model is an encoder, and the runtime requires caches; GP367, the model runs
                only on one version of OpenVINO's GPU plugin.
        """  # noqa: DOC501 - encoder_error is an UnsupportedError
        if not model.analysis(is_encoder):
            return self._pipeline(model, None)
        if not self.encoders:
            raise encoder_error(self.name, "cpu or gpu")
        if self.gives_up_fusion:
            raise UsageError("GP226", "cache=reorder requires a model with caches", "omit it")
        return self._whole(model)

    def require_contract(self, model: Model) -> None:
        """See `Target.require_contract`; encoders have no variables."""
        kept = (OPENVINO,) if self.encoders and model.analysis(is_encoder) else self.contract
        require(kept, model, self.name)

    def encoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        """See `Target.encoder_pipeline`.

        Returns:
            The passes, in order.

        Raises:
            UsageError: GP226, the target does not support models of an encoder and a decoder; GP227, the encoder fills
                the caches of cross attention.
        """
        if not self.seq2seq:
            return super().encoder_pipeline(model, first)
        if first is None and model.dialect == "onnx":
            reason = "the encoder fills the caches of cross attention itself, as onnxruntime-genai requires"
            raise UsageError("GP227", reason, "export the model with optimum instead")
        return self._whole(model)

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        return self._pipeline(model, first) if self.seq2seq else super().decoder_pipeline(model, first)

    def _pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        if (later := later_steps(model)) is not None:
            return (*parse("select-branch"), *self._pipeline(later, first))
        from graphpass.dialects.openvino.model import check_trim

        if self.cache == "reorder" and self.no_reorder is not None:
            raise UsageError("GP224", *self.no_reorder)
        if not self.takes_begin_one:
            check_trim(model, f"target {self.name}")
        inventory, has_chunks = analyze_caches(model), any(True for _ in find_chunks(model.graph))
        has_loops = any(model.graph.of_op("LinearAttention", "Loop", "Scan", "TensorIterator"))
        names = [
            *_to_openvino(model),
            *(drop_ports(model.analysis(extra_outputs)) if self.generates else ()),
            *_if(narrow_inputs(model.graph), "widen-inputs"),
            *_if(_chooses_tables(model), "select-rows"),
            *_if(has_loops or has_chunks, "fuse-gated-delta-net"),
            *_if(has_chunks and not self.pages_states, "rechunk-linear-attention"),
            *_if(first is not None, f"compute-cross-caches{{source={quote(str(first))}}}"),
            "change-precision",
            *_if(any(True for _ in model.graph.of_op("TopK")), "batch-experts"),
            *self.before_attention,
            *_if(is_packed(model, inventory) or flat_caches(model, inventory), "unpack"),
            *_if(inventory.caches and rounds_activations(model), "quantize-before-append"),
            *_if(model.analysis(find_tiled_heads), "regroup-heads"),
            "fuse-attention",
            *_if(self.feeds_mask and _lacks_mask(model, inventory), "add-attention-mask"),
            *_if(_reads_other_columns(model, inventory), "extend-mask-to-past"),
            *self._expose_positions(model, inventory),
            "expose-window{partial=true}" if self.exposes_partial_windows else "expose-window",
            "simplify-shapes" if self.drops_identities else "simplify-shapes{identities=false}",
            *_if(has_chunks and self.pages_states, "fuse-selective-ssm"),
            "expose-alibi",
            *_if(self.expands_latents and find_latents(model), "expand-latents"),
            "standardize-layout",  # next to make-stateful, which reuses its inventory
            *_if(self.copies_shared and self.cache == "beam" and _shares(inventory), "copy-shared-caches"),
            *_if(not inventory.stateful, "make-stateful"),
            *_if(inventory.of_kind("linear"), "widen-conv-window"),
            *_if(self.cache == "reorder", self.insert_reorder),
            *_if(first is not None, "keep-cross-caches"),
            *_if(
                self.hides_positions and any(block.is_windowed for block in inventory.attention),
                "window-from-positions{required=false}",
            ),
            *_if(self.moves_slots and _has_chunks(model), "chunks-from-positions"),
            *_if(self.cuts_logits, "last-logits"),
            *_if(self.reads_all_logits and model.analysis(find_last_token), "all-logits"),
            "set-runtime-options",  # before passes that read whether activations are scaled
            *_if(self.pages_states and _has_one_row(model), "reshape-by-constants{rows=true}"),
            *self.after_stateful,
        ]
        return parse(",".join(names))

    def _whole(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes for a model without caches."""
        counts = _if(any(port.name == "position_ids" for port in model.inputs), "count-positions")
        first = (*_to_openvino(model), "change-precision", *counts)
        return parse(",".join([*first, "fuse-attention", "simplify-shapes", *self.after_stateful]))

    def _expose_positions(self, model: Model, inventory: Inventory) -> tuple[str, ...]:
        """Return the pass that makes positions an input, if the runtime feeds them.

        If linear states absorb padding, positions of padding affect the results. So they do if the largest position
        selects frequencies, unless pages have no padding. They then stay inside the model, unless they are computed
        from the mask or are an input already. Runtimes of encoder-decoders feed no positions.
        """
        if self.feeds_positions:
            return ("expose-position-ids{always=true}",)
        counted = model.dialect == "onnx" and any(True for _ in model.graph.of_op("GroupQueryAttention"))
        if counted or any(port.name == "position_ids" for port in model.inputs):
            return ("expose-position-ids",)
        masks = "mask-padding" in self.before_attention
        leaks = not masks and any(absorbs_padding(model, cache) for cache in inventory.of_kind("linear"))
        leaks = leaks or inventory.kind == "linear" or bool(inventory.of_kind("cross"))
        return _if(not leaks and (self.pages_states or not _selects_frequencies(model.graph)), "expose-position-ids")


def _reads_other_columns(model: Model, inventory: Inventory) -> bool:
    """Return whether linear layers read columns of attention_mask before the last."""
    from graphpass.analysis.equations.token_weights import find_weighing

    return find_step_tokens(model, inventory).masks_new_tokens or bool(model.analysis(find_weighing).of_others)


def _chooses_tables(model: Model) -> bool:
    """Return whether an If has only matrices as results, such as rotary tables."""
    return any(all(value.rank == 2 for value in node.outputs) for node in model.graph.of_op("If"))


def _selects_frequencies(graph: Graph) -> bool:
    """Return whether rotary frequencies are one of two constants (longrope)."""
    angles = [node.source() for node in graph.of_op("Cos")]
    return any(
        node.op == "Select" and all(graph.producer(value).op == "Constant" for value in node.sources[1:])
        for node in graph.backward(angles, lambda node: node.inputs)
    )


def _lacks_mask(model: Model, inventory: Inventory) -> bool:
    return "attention_mask" not in model.graph.parameters and {cache.kind for cache in inventory.caches} == {"kv"}


def _has_chunks(model: Model) -> bool:
    """Return whether masks limit attention to chunks of positions."""
    return any(mask.chunk is not None for mask in model.analysis(find_masks))


def _has_one_row(model: Model) -> bool:
    tokens = token_input(model.graph)
    return tokens is not None and fixed_size(tokens, 0) == 1


def _shares(inventory: Inventory) -> bool:
    keys = [block.key for block in inventory.attention if block.key is not None]
    return len(keys) > len(set(keys))


def _quantizes_caches(model: Model) -> bool:
    return any(quantized_bits(node) is not None for node in model.graph.of_op("GroupQueryAttention"))


def _to_openvino(model: Model) -> list[str]:
    if model.dialect == "openvino":
        return []
    lowered = any(True for _ in model.graph.of_op(*LOWERED))
    steps = [*(upgrade_opset(model) if lowered else ())]
    if any(len(node.inputs) == 1 and "axes" in node.attributes for node in model.graph.of_op(*UPGRADED)):
        steps = ["upgrade-opset{to=18}"]
    steps += [*_if(_quantizes_caches(model), "dequantize-caches"), *_if(lowered, "lower-operators")]
    return [*steps, "to-openvino"]


def _if(condition: object, name: str) -> tuple[str, ...]:
    return (name,) if condition else ()
