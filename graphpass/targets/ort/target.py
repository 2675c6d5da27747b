"""Define the target `ort`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from graphpass.analysis.caches.encoders import is_encoder
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.latents import find_latents
from graphpass.engine.conditions import ONNX
from graphpass.engine.findings import Finding, Observation
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import parse
from graphpass.engine.syntax import quote
from graphpass.engine.target import Padding, Target
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.targets.ort import rules, trial
from graphpass.targets.ort.context import context_length
from graphpass.targets.ort.providers import PROVIDERS, Device, Provider
from graphpass.targets.rules import require_onnx


@dataclass(frozen=True)
class ORT(Target):
    """ONNX Runtime, on CPU, CUDA, DirectML or WebGPU.

    Attention and its cache become one operator where ONNX Runtime has one, as do loops over the tokens of linear
    attention, and convolutions over a window of cached columns. Caches keep their names, go in as past and
    come out as present; both may be one buffer of more room.

    Options:
        device: The provider that runs it. For all but ``cpu`` hidden states are f16, of models in bf16 on ``cuda``
            bf16, and sums are joined with norms; attention stays where the provider's kernel lacks what it needs. For
            ``cuda`` and ``dml``, whose kernels add no bias, padding is read on the right. CUDA and DirectML were
            not run, WebGPU in f32.
        cache: With ``reorder`` the inputs ``src_idx`` and ``dst_idx`` move slots of the pasts, which are cut to the
            length that the mask leaves for them.
        padding: Where padding may stand, see `fuse-group-query-attention`: with ``right`` a batch padded on the left
            is misread. By default ``any``, on ``cuda`` and ``dml`` ``right``.
        batch: With ``any`` batches take several new tokens after a past, see `count-new-tokens`; such models are for
            ONNX Runtime from version 1.32 on. With ``one`` sessions feed such tokens one by one.
        context: Number of positions in tables of rotary embeddings; by default what ``config.json`` says. Without
            either, rotary embeddings stay unchanged.
        logits: With ``last`` those of the last token of each row, see `last-logits`.
        activations: Type of activations in products with quantized weights, see `fuse-quantized-weights` and
            `fuse-experts`.
        precision: Type of hidden states, weights and caches, see `change-precision`. With ``f16`` the CPU casts at each
            operator that it has in f32 alone; ``bf16`` is for ``cuda`` alone. By default
            ``f32`` on ``cpu``; models in bf16 stay so on ``cuda``; all else is ``f16``.
        cache_precision: With ``i8`` or ``i4`` keys and values are kept in 8 or 4 bits, see `quantize-caches`.
        calibration: File of prompts that give their scales, the option ``tokens`` of `quantize-caches`.
    """

    name = "ort"
    description = "ONNX Runtime: attention and its cache in one operator, past and present as inputs and outputs"
    dialect = "onnx"
    output_file = "model.onnx"
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
            raise ValueError(f"precision=bf16 is for device=cuda: {self.provider.name} has no kernels for bf16")

    @property
    def provider(self) -> Provider:
        """Return what the device has kernels for."""
        return PROVIDERS[self.device]

    @property
    def reads_any_padding(self) -> bool:
        """Return whether padding may stand on either side."""
        return "padding" not in self.provider.lacks if self.padding is None else self.padding == "any"

    @property
    def pads_values(self) -> bool:
        """Return whether caches of values take the size of those of keys."""
        return False

    @property
    def expands_latents(self) -> bool:
        """Return whether keys and values are kept instead of latents."""
        return False

    @property
    def feeds_positions(self) -> bool:
        """Return whether ``position_ids`` is fed to models that have it, and counts no padding."""
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
            return f"models are tried on the CPU and WebGPU providers alone, and not on {self.provider.name}"
        from graphpass.dialects.onnx.model import OnnxModel
        from graphpass.targets.ort.webgpu_trial import observe

        assert isinstance(model, OnnxModel)
        return observe(model)

    def attempt(self, model: Model) -> Observation | str:
        """Try the runtime on the CPU."""
        return trial.observe(model)

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            ReadError: GP116, the configuration beside the model is not a JSON object.
            UnsupportedError: GP366, the model is OpenVINO IR.
        """
        require_onnx(model, self.name)
        options = [] if self.reads_any_padding else ["padding=right"]
        options += self.provider.fusion_options
        options += ["pad-values=true"] if self.pads_values else []
        context = self.context or context_length(model.path)
        options += [] if context is None else [f"context={context}"]
        kinds = {node.op for node in model.graph.nodes}
        steps = ["change-precision"] if _has_casts_at_caches(model) or _is_in_bf16(model) else []
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
        steps += ["expose-position-ids"] if self._lacks_positions(model) else []
        # Norms go first: heads that are normed change places once.
        grouped = f"fuse-group-query-attention{{{','.join(options)}}}"
        steps += ["fuse-functions", "fuse-multi-head-attention" if model.analysis(is_encoder) else grouped]
        steps += ["lower-attention"] if "Attention" in kinds and not self.provider.has_attention else []
        # Operators count tokens of rows that are padded on the right; masks that are left count slots.
        windows = any(block.window is not None for block in analyze_caches(model).attention)
        steps += ["window-from-positions{required=false}"] if windows and not self.reads_any_padding else []
        steps += ["reshape-by-constants"]
        steps += ["join-projections"] if "packing" not in self.provider.lacks else []
        steps += ["count-new-tokens"] if self.batch == "any" and "counts" not in self.provider.lacks else []
        steps += ["fuse-skip-norms"] if self.provider.joins_sums else []
        # Before what stands between past and attention, and before logits go.
        steps += self._quantized() if self.cache_precision is not None else []
        steps += ["last-logits"] if self.logits == "last" else []
        steps += ["insert-reorder{form=onnx}"] if self.cache == "reorder" else []
        # Fusions match constants, and compute tables, as they were exported.
        demotion = self.demotion(model)
        steps += [] if demotion is None else [demotion]
        return parse(",".join(steps))

    def _lacks_positions(self, model: Model) -> bool:
        has_input = "position_ids" in model.graph.parameters
        return self.feeds_positions and not has_input and not analyze_caches(model).of_kind("cross")

    def _experts(self) -> str:
        options = ["activations=int8"] if self.activations == "int8" else []
        options += [] if self.provider.quantized_expert_types else ["quantized=false"]
        return f"fuse-experts{{{','.join(options)}}}" if options else "fuse-experts"

    def demotion(self, model: Model, *, cross: bool = False) -> str | None:
        """Return the pass that makes ``model`` compute in 16 bits; ``None`` for f32."""
        usual = "bf16" if self.provider.has_bf16 and _is_in_bf16(model) else self.provider.precision
        precision = self.precision or usual
        options = f"to={precision},cross=true" if cross else f"to={precision}"
        return None if precision == "f32" else f"change-precision{{{options}}}"

    def _quantized(self) -> list[str]:
        options = [f"bits={str(self.cache_precision)[1:]}"]
        options += [] if self.calibration is None else [f"tokens={quote(self.calibration)}"]
        return [f"quantize-caches{{{','.join(options)}}}"]


def _is_in_bf16(model: Model) -> bool:
    from graphpass.dialects.onnx.precision import first_in_bf16

    return model.analysis(first_in_bf16) is not None


def _has_casts_at_caches(model: Model) -> bool:
    """Return whether caches in f32 become f16 inside, as converters write that keep ports."""
    graph, caches = model.graph, analyze_caches(model).of_kind("kv")
    pasts = [graph.reads[cache.read].outputs[0] for cache in caches]
    users = (use.node for past in pasts if past.element_type == "f32" for use in graph.uses(past))
    return any(node.op == "Convert" and node.outputs[0].element_type == "f16" for node in users)
