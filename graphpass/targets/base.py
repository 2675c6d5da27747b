"""Targets: a runtime and device, the pipeline that leads there, and what its models must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from graphpass.dialects.openvino.frontend import lowerings
from graphpass.engine.conditions import ONNX, OPENVINO, STATEFUL
from graphpass.engine.target import Target
from graphpass.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.engine.passes import Condition, Pass
    from graphpass.ir.model import Model

__all__ = ["CPU", "GPU", "NPU", "ORT", "Paged"]

#: The input that decides between a decoder for the first step and one for all others, in files that hold both.
_SWITCH = "use_cache_branch"


#: What to do on NPUs instead of editing caches. NPUW leaves its mask as it was where the one that is fed is shorter.
GO_BACK = "to go back, feed position_ids from the earlier position on, and 0 in attention_mask for what was dropped"

#: What to do there where states would have to go back, which positions do not move.
START_AGAIN = "to go back, start again: NPUW keeps no earlier states"

#: Inputs by which passes let a caller edit caches, and see or take back steps.
EDITING_INPUTS = frozenset({"src_idx", "dst_idx", "past_len", "tree_mask", "steps_back"})


@dataclass(frozen=True)
class _StatefulIR(Target):
    """A runtime of OpenVINO that keeps caches itself.

    Caches become variables behind a ``beam_idx`` Gather and attention becomes ``ScaledDotProductAttention``. Positions
    and windows are exposed for paged attention, which sees neither the cache's length nor the mask.

    Attributes:
        cache: Whether slots of caches are read as beams order them, or can be moved and cut from outside.
        no_reorder: Why slots cannot be moved, and what to do instead; ``None`` where they can.
        takes_begin_one: Whether a model is taken whose caches are cut as one version of one plugin wants it.
        beforehand: Passes that this runtime alone needs, before all that work on attention.
        afterwards: Passes that it alone needs on the stateful model.
        drops_identities: Whether operators that give their input are taken out. They cost nothing in static shapes.
        seq2seq: Whether it runs an encoder and a decoder that keeps what it computes of the encoder's states.
    """

    output_file: ClassVar[str] = "openvino_model.xml"
    contract: ClassVar[tuple[Condition, ...]] = (OPENVINO, STATEFUL)
    no_reorder: ClassVar[tuple[str, str] | None] = None
    takes_begin_one: ClassVar[bool] = False
    beforehand: ClassVar[tuple[str, ...]] = ()
    afterwards: ClassVar[tuple[str, ...]] = ()
    drops_identities: ClassVar[bool] = True
    seq2seq: ClassVar[bool] = False

    cache: Literal["beam", "reorder"] = "beam"

    @property
    def gives_up_fusion(self) -> bool:
        """See `Target.gives_up_fusion`."""
        return self.cache == "reorder"

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            UsageError: GP224, slots are to be movable, and the runtime takes no such model.
            UnsupportedError: GP367, the model is made for one version of OpenVINO's GPU plugin alone.
        """
        if self.cache == "reorder" and self.no_reorder is not None:
            raise UsageError("GP224", *self.no_reorder)
        from graphpass.analysis.caches.inventory import analyze_caches
        from graphpass.analysis.caches.packed import flat_caches
        from graphpass.analysis.caches.padding import absorbs_padding
        from graphpass.analysis.caches.parts import packed_caches
        from graphpass.analysis.caches.stepping import find_stepping
        from graphpass.dialects.openvino.model import check_trim
        from graphpass.engine.pipeline import parse

        if not self.takes_begin_one:
            check_trim(model, f"target {self.name}")

        inventory = analyze_caches(model)
        unpacking = ["unpack-kv"] if packed_caches(inventory) else []
        unpacking += ["unpack-linear"] if flat_caches(model, inventory) else []
        before = [*_experts(model), *self.beforehand, *unpacking]
        names = [*_to_openvino(model), "compute-in-f32", *before, "fuse-attention"]
        if find_stepping(model, inventory).masks_new_tokens:
            names.append("cover-past")
        from_mask = "lower-group-query-attention" in names
        fed = any(port.name == "position_ids" for port in model.inputs)
        # Where padding leaks into linear states even the positions of padding are results, unless they are counted from
        # the mask or fed already; and the runtimes of encoder-decoder models feed no positions.
        masks = "mask-padding" in self.beforehand
        leaks = not masks and any(absorbs_padding(model, cache) for cache in inventory.of_kind("linear"))
        if from_mask or fed or not (leaks or inventory.kind == "linear" or inventory.of_kind("cross")):
            names.append("expose-position-ids")
        names += ["expose-window", "simplify-shapes" if self.drops_identities else "simplify-shapes{identities=false}"]
        names.append("expose-alibi")
        # Beside make-stateful, which asks for the same inventory.
        names.append("standardize-layout")
        if not inventory.stateful:
            names.append("make-stateful")
        if inventory.of_kind("linear"):
            names.append("widen-conv-window")
        if self.cache == "reorder":
            names.append(self._reordering())
        # What comes afterwards may ask whether activations are scaled.
        names += ["set-runtime-options", *self.afterwards]
        return parse(",".join(names))

    def _reordering(self) -> str:
        """The pass that lets slots be moved, as text."""
        return "insert-reorder"

    def encoder_pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.encoder_pipeline`."""
        from graphpass.engine.registry import get_pass

        if not self.seq2seq:
            return super().encoder_pipeline(model)
        names = [*_to_openvino(model), "compute-in-f32", "fuse-attention"]
        names.append("simplify-shapes")
        return tuple(get_pass(name)() for name in names)

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        """See `Target.decoder_pipeline`."""
        from graphpass.engine.registry import get_pass

        if not self.seq2seq:
            return super().decoder_pipeline(model, first)
        passes = self.pipeline(model)
        if first is None:
            return passes
        start = len(_to_openvino(model))
        options: dict[str, Any] = {"source": str(first)}
        compute = get_pass("compute-cross-caches")(**options)
        return (*passes[:start], compute, *passes[start:-1], get_pass("keep-cross-caches")(), passes[-1])


@dataclass(frozen=True)
class CPU(_StatefulIR):
    """OpenVINO's CPU plugin, and openvino.genai on it.

    The form is the one that the plugin fuses into a stateful attention kernel.

    Options:
        cache: With ``reorder`` the inputs ``src_idx`` and ``dst_idx`` move slots of caches, and a shorter mask cuts
            them; the plugin does not fuse that.
    """

    name: ClassVar[str] = "cpu"
    seq2seq: ClassVar[bool] = True
    description: ClassVar[str] = "OpenVINO on CPU: stateful, with attention fused; runs in openvino.genai"


@dataclass(frozen=True)
class GPU(_StatefulIR):
    """OpenVINO's GPU plugin, and openvino.genai on it.

    Options:
        cache: With ``beam`` caches are read through ``beam_idx``, which the plugin turns into a table of beams; with
            ``reorder`` through ``src_idx`` and ``dst_idx``, with which speculative decoding moves and cuts slots. Never
            through both.
        trim: How ``reorder`` cuts: by a Slice, which versions of the plugin after 2026.4.1 fuse, or with ``begin-one``
            as 2026.4.1 does; that is wrong on all other devices and versions, and is marked so in the model.
    """

    name: ClassVar[str] = "gpu"
    seq2seq: ClassVar[bool] = True
    description: ClassVar[str] = "OpenVINO on GPU: stateful, caches in the plugin's own kernel; runs in openvino.genai"
    takes_begin_one: ClassVar[bool] = True
    afterwards: ClassVar[tuple[str, ...]] = ("lower-variadic-split", "lower-boolean-gathers")

    trim: Literal["slice", "begin-one"] = "slice"

    def __post_init__(self) -> None:
        """Check that the options fit."""
        if self.trim != "slice" and self.cache != "reorder":
            raise ValueError("trim is how cache=reorder cuts")

    def _reordering(self) -> str:
        return "insert-reorder" if self.trim == "slice" else f"insert-reorder{{trim={self.trim}}}"


@dataclass(frozen=True)
class NPU(_StatefulIR):
    """The NPU plugin's NPUW, which takes a model apart into a prefill and a decode model of static shapes.

    It knows variables by optimum's names alone, and takes no inputs but ids or embeddings, mask and positions.

    Options:
        cache: ``beam`` alone; to go back, feed ``position_ids`` from the earlier position on, and 0 in
            ``attention_mask`` for each position that was dropped.
    """

    name: ClassVar[str] = "npu"
    description: ClassVar[str] = "OpenVINO on NPU: what NPUW takes and computes rightly"
    no_reorder: ClassVar[tuple[str, str] | None] = (
        "NPUW takes no inputs that move slots of caches",
        f"leave out cache=reorder; {GO_BACK}",
    )
    beforehand: ClassVar[tuple[str, ...]] = ("mask-padding", "compute-all-experts")
    afterwards: ClassVar[tuple[str, ...]] = (
        "measure-keys",
        "lower-boolean-masks",
        "insert-position-ids",
        "rename-variables",
    )
    # NPUW cuts models where it finds routers and experts, by form and by name. Without a Reshape to the same shape
    # behind the experts it refuses afmoe, and without a Slice of the whole before a ScatterElementsUpdate it reads
    # wrong choices in phimoe (2026.4.1; not where both of its hints NPUW_LLM_.._MOE_HINT are DENSE).
    drops_identities: ClassVar[bool] = False

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            UsageError: GP224, slots are to be movable.
            UnsupportedError: GP367 as of other targets; GP369 the model has inputs that edit caches.
        """
        if edits := sorted({port.name for port in model.inputs} & EDITING_INPUTS):
            raise UnsupportedError(
                "GP369",
                f"NPUW takes {edits[0]} for a cache, as all inputs that it does not know",
                f"take the model without it; {START_AGAIN if 'steps_back' in edits else GO_BACK}",
            )
        return super().pipeline(model)


@dataclass(frozen=True)
class Paged(_StatefulIR):
    """Paged attention, openvino.genai's default backend.

    It keeps blocks of caches itself and computes attention without the model's mask: what it would lose of a model
    (ALiBi, a window that it does not find) breaks the contract, so that no such model is written.

    Options:
        cache: ``beam`` alone; the scheduler of openvino.genai shares and frees blocks.
    """

    name: ClassVar[str] = "paged"
    description: ClassVar[str] = "openvino.genai's default backend: what SDPAToPagedAttention transforms rightly"
    no_reorder: ClassVar[tuple[str, str] | None] = (
        "paged attention keeps the caches' slots itself, so they cannot be reordered from outside",
        "leave out cache=reorder; the scheduler of openvino.genai shares and frees blocks",
    )


@dataclass(frozen=True)
class ORT(Target):
    """ONNX Runtime, on CPU or CUDA.

    Operators and names stay as they were exported, caches go in as past and come out as present.

    Options:
        cache: With ``reorder`` the inputs ``src_idx`` and ``dst_idx`` move slots of the pasts, which are cut to the
            length that the mask leaves for them.
    """

    name: ClassVar[str] = "ort"
    description: ClassVar[str] = "ONNX Runtime: past and present as inputs and outputs"
    output_file: ClassVar[str] = "model.onnx"
    contract: ClassVar[tuple[Condition, ...]] = (ONNX,)

    cache: Literal["past", "reorder"] = "past"

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            UnsupportedError: GP366, the model is OpenVINO IR.
        """
        if missing := ONNX.missing(model):
            raise UnsupportedError("GP366", f"target {self.name} writes ONNX, but {missing}", ONNX.hint)
        from graphpass.engine.pipeline import parse

        return parse("insert-reorder{form=onnx}") if self.cache == "reorder" else ()


def _to_openvino(model: Model) -> list[str]:
    """The passes that lead ``model`` to IR."""
    if model.dialect == "openvino":
        return []
    branch = ["take-branch"] if any(port.name == _SWITCH for port in model.inputs) else []
    return [*branch, *lowerings(node.op for node in model.graph.nodes), "to-openvino"]


def _experts(model: Model) -> list[str]:
    """The pass that joins experts, where something chooses them."""
    return ["join-experts"] if any(True for _ in model.graph.of_op("TopK")) else []
