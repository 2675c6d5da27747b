"""The target `ort`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graphpass.analysis.attention.tiled_heads import find_tiled_heads
from graphpass.analysis.caches.encoders import is_encoder
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.latents import find_latents
from graphpass.analysis.caches.packed import is_packed
from graphpass.engine.conditions import ONNX
from graphpass.engine.findings import Finding, Observation
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.syntax import quote
from graphpass.engine.target import Padding, Target
from graphpass.errors import UsageError
from graphpass.ir.cache import BHSD, Inventory
from graphpass.ir.model import Model
from graphpass.targets.ort import rules, trial
from graphpass.targets.ort.context import context_length
from graphpass.targets.ort.providers import PROVIDERS, Device, Provider
from graphpass.targets.rules import later_steps, require_onnx, upgrade_opset

#: Lowerings of operators that compute query, key and value from weights, and store both in one cache.
_PROJECTED = {"com.microsoft.Attention": "projected-attention", "QAttention": "quantized-projected-attention"}


@dataclass(frozen=True)
class ORT(Target):
    """ONNX Runtime, on CPU, CUDA, DirectML or WebGPU.

    Operators of ONNX Runtime replace attention with its cache, loops over the tokens of linear attention, and
    convolutions over a window of cached columns. Caches keep their names as pasts and presents; past and present may
    share a larger buffer.

    Options:
        device: The execution provider. Except on ``cpu``, hidden states are f16 (bf16 on ``cuda`` for models in bf16),
            and sums are fused with norms. Attention is not fused if the provider's kernel lacks a feature. On ``cuda``
            and ``dml``, whose kernels do not add a bias, only right padding is supported. CUDA and DirectML were not
            tested, WebGPU in f32 only.
        cache: With ``reorder``, the inputs ``src_idx`` and ``dst_idx`` move slots of the pasts, and a shorter mask
            trims them.
        padding: Supported sides of padding, see `fuse-group-query-attention`. With ``right``, outputs of
            left-padded batches are wrong. By default ``any``, on ``cuda`` and ``dml`` ``right``.
        batch: With ``any``, batches accept several new tokens after a past, see `count-new-tokens`; this requires
            ONNX Runtime 1.32. With ``one``, sessions feed such tokens one at a time.
        context: Number of positions in rotary tables; by default that in ``config.json``. If unknown, rotary embeddings
            are unchanged.
        logits: With ``last``, only the logits of each row's last token are computed; see `last-logits`.
        activations: Type of activations in products with quantized weights, see `fuse-quantized-weights` and
            `fuse-experts`.
        precision: Type of hidden states, weights and caches, see `change-precision`. With ``f16``, the CPU casts at
            operators without an f16 kernel. ``bf16`` requires ``cuda``. By default ``f32`` on ``cpu``; on ``cuda``,
            models in bf16 keep their type; otherwise ``f16``.
        cache_precision: With ``i8`` or ``i4``, keys and values are stored in 8 or 4 bits; see `quantize-caches`.
        calibration: File of prompts for their scales; the option ``tokens`` of `quantize-caches`.
    """

    name = "ort"
    description = "ONNX Runtime: attention and its cache in one operator, past and present as inputs and outputs"
    dialect = "onnx"
    output_file = "model.onnx"
    part_files = ("encoder_model.onnx", "decoder_model.onnx")
    contract = (ONNX,)

    device: Device = "cpu"
    cache: Literal["past", "reorder"] = "past"
    padding: Literal["any", "right"] | None = None
    batch: Literal["one", "any"] = "one"
    context: int | None = None
    logits: Literal["all", "last"] = "all"
    activations: Literal["f32", "int8"] = "f32"
    precision: Literal["f32", "f16", "bf16"] | None = None
    cache_precision: Literal["i8", "i4"] | None = None
    calibration: str | None = None

    def __post_init__(self) -> None:
        if self.precision == "bf16" and not self.provider.has_bf16:
            raise ValueError(f"precision=bf16 requires device=cuda: {self.provider.name} has no kernels for bf16")

    @property
    def provider(self) -> Provider:
        """Return the execution provider of the device."""
        return PROVIDERS[self.device]

    @property
    def reads_any_padding(self) -> bool:
        """Return whether left and right padding are supported."""
        return "padding" not in self.provider.lacks if self.padding is None else self.padding == "any"

    @property
    def lays_out_caches(self) -> bool:
        """Return whether the runtime requires caches ``[batch, heads, positions, head_dim]``."""
        return False

    @property
    def pads_values(self) -> bool:
        """Return whether values are padded to the head_dim of keys."""
        return False

    @property
    def expands_latents(self) -> bool:
        """Return whether keys and values are stored instead of latents."""
        return False

    @property
    def feeds_positions(self) -> bool:
        """Return whether the runtime feeds ``position_ids`` that do not count padding."""
        return False

    @property
    def reads_padding(self) -> Padding:
        return "left" if self.reads_any_padding else "right"

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:
        return rules.predict(model, inventory, self.device)

    def observe(self, model: Model) -> Observation | str:
        if self.device == "cpu":
            return self.attempt(model)
        if self.device != "webgpu":
            return f"trials run only on the CPU and WebGPU providers, not on {self.provider.name}"
        from graphpass.dialects.onnx.model import OnnxModel
        from graphpass.targets.ort.webgpu_trial import observe

        assert isinstance(model, OnnxModel)
        return observe(model)

    def attempt(self, model: Model) -> Observation | str:
        """Run the trial on the CPU provider.

        Returns:
            The observation; see `graphpass.targets.ort.trial.observe`.
        """
        return trial.observe(model)

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """Return the passes, as `Target.pipeline`.

        Raises:
            ReadError: GP116, the configuration beside the model is not a JSON object.
            UnsupportedError: GP366, the model is OpenVINO IR.
        """
        require_onnx(model, self.name)
        if (later := later_steps(model)) is not None:
            return (*parse("select-branch"), *self._pipeline(later))
        return self._pipeline(model)

    def _pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        options = [] if self.reads_any_padding else ["padding=right"]
        options += self.provider.fusion_options
        options += ["pad-values=true"] if self.pads_values else []
        context = self.context or context_length(model.path)
        options += [] if context is None else [f"context={context}"]
        kinds = {node.op for node in model.graph.nodes}
        steps = [*upgrade_opset(model)]
        steps += ["change-precision"] if _has_casts_at_caches(model) or _is_in_bf16(model) else []
        steps += [self._experts()] if "TopK" in kinds and self.provider.expert_types else []
        steps += (
            ["lower-operators{only=[mixture-of-experts]}"] if "MoE" in kinds and not self.provider.expert_types else []
        )
        steps += ["fuse-linear-attention"] if kinds & {"Loop", "Pad", "Scan"} else []
        steps += ["fuse-causal-conv"] if "Conv" in kinds else []
        steps += [f"fuse-quantized-weights{{activations={self.activations}}}"] if "DequantizeLinear" in kinds else []
        inside = [node for node in model.graph.of_op("Attention") if node.input(4) is not None]
        steps += ["separate-past"] if inside else []
        steps += ["expand-latents"] if self.expands_latents and find_latents(model) else []
        steps += self._unpacked(model) if is_packed(model, analyze_caches(model)) else []
        others = any(cache.axes != BHSD for cache in analyze_caches(model).of_kind("kv"))
        steps += ["standardize-layout"] if self.lays_out_caches and others and not find_latents(model) else []
        steps += ["expose-position-ids"] if self._lacks_positions(model) else []
        steps += ["regroup-heads"] if model.analysis(find_tiled_heads) else []
        # Norms are fused first, so that Transposes of normalized heads are moved only once.
        grouped = f"fuse-group-query-attention{{{','.join(options)}}}"
        crosses = self.provider.fuses_fixed_keys and bool(analyze_caches(model).of_kind("cross"))
        steps += ["fuse-functions", *(["fuse-multi-head-attention"] if crosses else [])]
        steps += ["fuse-multi-head-attention" if model.analysis(is_encoder) else grouped]
        steps += ["lower-attention"] if "Attention" in kinds and not self.provider.has_attention else []
        # Fused operators count tokens in right-padded rows; remaining masks count slots.
        windows = any(block.window is not None for block in analyze_caches(model).attention)
        steps += ["window-from-positions{required=false}"] if windows and not self.reads_any_padding else []
        steps += ["reshape-by-constants"]
        steps += ["join-projections"] if "packing" not in self.provider.lacks else []
        steps += ["count-new-tokens"] if self.batch == "any" and "counts" not in self.provider.lacks else []
        steps += ["fuse-skip-norms"] if self.provider.joins_sums else []
        # Before last-logits and insert-reorder, which add operators between past and attention.
        steps += self._quantized() if self.cache_precision is not None else []
        steps += ["last-logits"] if self.logits == "last" else []
        steps += ["insert-reorder{form=onnx}"] if self.cache == "reorder" else []
        # Last, because fusions match constants and compute tables in the exported precision.
        demotion = self.demotion(model)
        steps += [] if demotion is None else [demotion]
        return parse(",".join(steps))

    def encoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:
        """See `Target.encoder_pipeline`; the result computes the caches of cross attention.

        Returns:
            The passes, in order.

        Raises:
            UnsupportedError: GP366, the model is OpenVINO IR.
            UsageError: GP226, an option does not apply to encoder-decoders.
        """
        require_onnx(model, self.name)
        if self.cache_precision is not None:
            message = "cache-precision does not support models of an encoder and a decoder"
            raise UsageError("GP226", message, "omit it: such caches are short")
        steps = [*upgrade_opset(model)]
        steps += [] if first is None else [f"fill-cross-caches{{source={quote(str(first))}}}"]
        fuses = self.provider.fuses_fixed_keys or model.analysis(is_encoder)
        steps += ["fuse-functions", *(["fuse-multi-head-attention"] if fuses else []), "reshape-by-constants"]
        steps += ["fuse-skip-norms"] if self.provider.joins_sums else []
        steps += self._demotion(model)
        return parse(",".join(steps))

    def decoder_pipeline(self, model: Model, first: Path | None) -> tuple[Pass[Any], ...]:  # noqa: ARG002
        """See `Target.decoder_pipeline`; the result is the decoder for all steps, the first included.

        Returns:
            The passes, in order.
        """
        require_onnx(model, self.name)
        steps = replace(self, precision="f32").pipeline(model)
        return (*steps, *parse(",".join(self._demotion(model))))

    def _demotion(self, model: Model) -> list[str]:
        """Return the pass of `ORT.demotion`; encoder and decoder need caches of one type."""
        demotion = self.demotion(model, cross=True)
        return [] if demotion is None else [demotion]

    def _unpacked(self, model: Model) -> list[str]:
        """Return the passes that split packed caches; none where operators may store them."""
        lowered = lower_packed(model)
        return [*lowered, "unpack"] if not lowered or self.lays_out_caches or not self.provider.stores_packed else []

    def _lacks_positions(self, model: Model) -> bool:
        has_input = "position_ids" in model.graph.parameters
        return self.feeds_positions and not has_input and not analyze_caches(model).of_kind("cross")

    def _experts(self) -> str:
        options = ["activations=int8"] if self.activations == "int8" else []
        options += [] if self.provider.quantized_expert_types else ["quantized=false"]
        return f"fuse-experts{{{','.join(options)}}}" if options else "fuse-experts"

    def demotion(self, model: Model, *, cross: bool = False) -> str | None:
        """Return the pass that changes a model to 16 bits, as text; ``None`` for f32.

        Args:
            model: The model; if it is in bf16 and the provider supports bf16, it stays in bf16 by default.
            cross: Whether caches of cross attention are changed, too.
        """
        default = "bf16" if self.provider.has_bf16 and _is_in_bf16(model) else self.provider.precision
        precision = self.precision or default
        options = f"to={precision},cross=true" if cross else f"to={precision}"
        return None if precision == "f32" else f"change-precision{{{options}}}"

    def _quantized(self) -> list[str]:
        options = [f"bits={str(self.cache_precision)[1:]}"]
        options += [] if self.calibration is None else [f"tokens={quote(self.calibration)}"]
        return [f"quantize-caches{{{','.join(options)}}}"]


def lower_packed(model: Model) -> tuple[str, ...]:
    """Return the pass that lowers attention with keys and values in one tensor.

    Args:
        model: An ONNX model.
    """
    lowerings = sorted({_PROJECTED[node.op] for node in model.graph.of_op(*_PROJECTED)})
    has_packed = lowerings and is_packed(model, analyze_caches(model))
    return (f"lower-operators{{only=[{','.join(lowerings)}]}}",) if has_packed else ()


def _is_in_bf16(model: Model) -> bool:
    from graphpass.dialects.onnx.precision import first_in_bf16

    return model.analysis(first_in_bf16) is not None


def _has_casts_at_caches(model: Model) -> bool:
    """Return whether f32 caches are converted to f16, as by converters that keep port types."""
    graph, caches = model.graph, analyze_caches(model).of_kind("kv")
    pasts = [graph.reads[cache.read].outputs[0] for cache in caches]
    users = (use.node for past in pasts if past.element_type == "f32" for use in graph.uses(past))
    return any(node.op == "Convert" and node.outputs[0].element_type == "f16" for node in users)
