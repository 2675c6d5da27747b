"""Define the target `ort-genai`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphpass.engine.findings import Finding, Observation
from graphpass.engine.passes import Pass
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.targets.ort.genai_config import CONFIG_SOURCE, genai_config, require_sizes, why_no_generic_decoder
from graphpass.targets.ort.target import ORT


@dataclass(frozen=True)
class ORTGenAI(ORT):
    """onnxruntime-genai on ONNX Runtime: a folder that it opens.

    The folder holds the model, ``genai_config.json`` of the generic decoder, and the tokenizer. Past and present are
    one buffer if attention allows that, except in hybrids. Their prompts in a batch have to be of one length.

    Options:
        device: The provider that runs it, see `ort`; ``genai_config.json`` asks for it.
        cache: Always ``past``.
        padding: onnxruntime-genai pads batches on the right.
        context: Most positions; by default what ``config.json`` says.
        logits: With ``last`` those of the last token of each row, see `last-logits`.
        activations: Type of activations in products with quantized weights, see `fuse-quantized-weights`.
        precision: With ``f16`` hidden states, weights and caches are f16, see `demote-to-f16`; logits stay f32.
        cache_precision: With ``i8`` or ``i4`` keys and values are kept in 8 or 4 bits, see `quantize-caches`.
        calibration: File of prompts that give their scales, the option ``tokens`` of `quantize-caches`.
    """

    name = "ort-genai"
    description = "onnxruntime-genai: a folder with genai_config.json, caches in one buffer where attention allows it"

    cache: Literal["past"] = "past"
    padding: Literal["any", "right"] | None = "right"

    @property
    def pads_values(self) -> bool:
        """See `ORT.pads_values`: onnxruntime-genai makes all caches of one shape."""
        return True

    def pipeline(self, model: Model) -> tuple[Pass[Any], ...]:
        """See `Target.pipeline`.

        Raises:
            PreconditionError: GP396, the number of positions or of token ids is not known.
            ReadError: GP116, a configuration beside the model is no JSON object.
            UnsupportedError: GP366, the model is OpenVINO IR.
        """
        passes = super().pipeline(model)
        require_sizes(model, model.path, self.context)
        return passes

    def predict(self, model: Model, inventory: Inventory) -> tuple[Finding, ...]:
        """See `Target.predict`."""
        reason = why_no_generic_decoder(model)
        refused = () if reason is None else (Finding.of_model(model, "refused", reason, CONFIG_SOURCE),)
        hybrid = inventory.kind == "hybrid" and not refused
        limit = "prompts of a batch have to be of one length: padding enters recurrent states and windows"
        limited = (Finding.of_model(model, "taken", limit),) if hybrid else ()
        return (*refused, *limited, *super().predict(model, inventory))

    def attempt(self, model: Model) -> Observation | str:
        """See `ORT.attempt`."""
        from graphpass.targets.ort.genai_trial import observe

        return observe(model, self.context)

    def files(self, model: Model, source: Path | None) -> dict[str, str]:
        """See `Target.files`; raises as `graphpass.targets.ort.genai_config.genai_config`."""
        return {"genai_config.json": genai_config(model, source, self.context, self.device)}
